use super::*;

fn id(digit: char) -> String {
    String::from(digit).repeat(64)
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    fs::write(path, text).expect("written");
}

/// A machine with four runtimes, in their own files.
fn machine() -> (tempfile::TempDir, Vec<Found>) {
    let dir = tempfile::tempdir().expect("a folder");
    let root = dir.path();
    let docker = format!(
        r#"{{"ID":"{}","Name":"/web","State":{{"Running":true,"Pid":7}},"Config":{{"Image":"nginx:1.25","Tty":false}}}}"#,
        id('a')
    );
    write(root, &format!("var/lib/docker/containers/{}/config.v2.json", id('a')), &docker);
    write(root, &format!("var/lib/docker/containers/{}/config.v2.json", id('9')), "{ damaged");
    let podman = format!(
        r#"[{{"id":"{}","names":["db"],"image":"5f","layer":"x","metadata":"{{\"image-name\":\"docker.io/library/postgres:16\",\"name\":\"db\"}}"}}]"#,
        id('b')
    );
    write(root, "var/lib/containers/storage/overlay-containers/containers.json", &podman);
    let rootless = format!(r#"[{{"id":"{}","names":["mine"]}}]"#, id('c'));
    write(root, "home/ada/.local/share/containers/storage/overlay-containers/containers.json", &rootless);
    for (digit, name, kind) in [('d', "app", "container"), ('e', "sidecar", "container"), ('f', "", "sandbox")] {
        let bundle = format!(
            r#"{{"ociVersion":"1.1.0","annotations":{{"io.kubernetes.cri.container-name":"{name}","io.kubernetes.cri.container-type":"{kind}",
            "io.kubernetes.cri.image-name":"registry/app:2","io.kubernetes.cri.sandbox-name":"shop-7d4","io.kubernetes.cri.sandbox-namespace":"prod"}}}}"#
        );
        write(root, &format!("run/containerd/io.containerd.runtime.v2.task/k8s.io/{}/config.json", id(digit)), &bundle);
    }
    let groups = root.join("cgroup");
    let pod = "kubepods.slice/kubepods-pod1.slice";
    for folder in [
        format!("system.slice/docker-{}.scope", id('a')),
        format!("machine.slice/libpod-conmon-{}.scope", id('b')),
        format!("machine.slice/libpod-{}.scope/container", id('b')),
        format!("{pod}/cri-containerd-{}.scope", id('d')),
        format!("{pod}/cri-containerd-{}.scope", id('e')),
        format!("{pod}/cri-containerd-{}.scope", id('f')),
        format!("docker/{}", id('0')),
        "system.slice/nginx.service".to_owned(),
    ] {
        fs::create_dir_all(groups.join(folder)).expect("made");
    }
    let all = found(root, &folders(&groups));
    (dir, all)
}

fn chosen(name: &str) -> Result<(String, Vec<String>), String> {
    let (dir, all) = machine();
    let (folder, known) = choose(name, all)?;
    let below = folder.strip_prefix(dir.path().join("cgroup")).expect("a control group").display().to_string();
    Ok((below, known.into_iter().map(|c| c.image.unwrap_or_default()).collect()))
}

#[test]
fn containers_have_the_names_that_their_runtimes_gave_them() {
    let some = |folder: String, image: &str| Ok((folder, vec![image.to_owned()]));
    let scope = |runtime: &str, digit| format!("{runtime}-{}.scope", id(digit));
    assert_eq!(chosen("web"), some(format!("system.slice/{}", scope("docker", 'a')), "nginx:1.25"));
    assert_eq!(chosen(&id('a')), chosen("web"));
    assert_eq!(chosen("aaaaaaaaaaaa"), chosen("web"), "the beginning of the id");
    assert_eq!(chosen("db"), some(format!("machine.slice/{}", scope("libpod", 'b')), "docker.io/library/postgres:16"));
    let pod = "kubepods.slice/kubepods-pod1.slice";
    assert_eq!(chosen("app"), some(format!("{pod}/{}", scope("cri-containerd", 'd')), "registry/app:2"));
    assert_eq!(chosen("shop-7d4/sidecar").map(|c| c.0), Ok(format!("{pod}/{}", scope("cri-containerd", 'e'))));
    assert_eq!(chosen("shop-7d4").map(|c| (c.0, c.1.len())), Ok((pod.to_owned(), 2)), "all of a pod");
    assert_eq!(chosen("prod/shop-7d4"), chosen("shop-7d4"));
    assert_eq!(chosen("0000").map(|c| c.0), Ok(format!("docker/{}", id('0'))), "known by its control group alone");
}

#[test]
fn what_cannot_be_recorded_is_refused_with_its_reason() {
    assert!(chosen("mine").is_err_and(|why| why.contains("does not run")));
    assert!(chosen("nowhere").is_err_and(|why| why.contains("known are web, db, app, sidecar, mine")));
    assert!(chosen("aaa").is_err(), "too short for an id");
    let (_dir, mut all) = machine();
    let mut twin = all[0].clone();
    twin.container.id = format!("b{}", &twin.container.id[1..]);
    all.push(twin);
    assert!(
        choose("web", all.clone())
            .is_err_and(|why| why.contains("several containers match: aaaaaaaaaaaa, baaaaaaaaaaa"))
    );
}

#[test]
fn one_that_stopped_does_not_hide_its_successor() {
    let (_dir, mut all) = machine();
    let mut before = all[0].clone();
    (before.container.id, before.container.image, before.folder) = (id('8'), Some("old".into()), None);
    all.insert(0, before);
    let (_, known) = choose("web", all).expect("one runs");
    assert_eq!(known.into_iter().map(|c| c.image).collect::<Vec<_>>(), [Some("nginx:1.25".to_owned())]);
}

#[test]
fn a_pod_without_a_control_group_of_its_own_is_refused() {
    let (_dir, mut all) = machine();
    let of_pod = |f: &Found| f.container.pod.is_some();
    let beside = all.iter().find(|f| of_pod(f)).and_then(|f| Some(f.folder.clone()?.with_file_name("other")));
    all.iter_mut().find(|f| f.container.name == "db").expect("made").folder = beside;
    assert!(choose("shop-7d4", all).is_err_and(|why| why.contains("name one of them")));
}

#[test]
fn users_decide_neither_names_of_others_nor_what_is_opened() {
    let (dir, _) = machine();
    let home = "home/eve/.local/share/containers/storage/overlay-containers";
    write(dir.path(), &format!("{home}/containers.json"), &format!(r#"[{{"id":"{}","names":["evil"]}}]"#, id('7')));
    let group = dir.path().join(format!("cgroup/docker/{}", id('7')));
    let of_root = format!("run/containerd/io.containerd.runtime.v2.task/x/{}/config.json", id('7'));
    write(dir.path(), &of_root, "{}");
    let name =
        |root: &Path| choose(&id('7'), found(root, std::slice::from_ref(&group))).expect("runs").1.remove(0).name;
    assert_eq!(name(dir.path()), id('7'));
    fs::remove_file(dir.path().join(home).join("containers.json")).expect("removed");
    let fifo = dir.path().join(home).join("containers.json");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::from_raw_mode(0o644)).expect("made");
    assert_eq!(name(dir.path()), id('7'), "and nothing waits for a writer");
}
