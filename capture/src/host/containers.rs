//! Containers and services by the names that people use, without asking a daemon: from what the runtimes keep on disk,
//! and from the control groups.
//!
//! A container's control group has the container's id in its name, whatever the runtime
//! (`docker-ID.scope`, `libpod-ID.scope`, `cri-containerd-ID.scope`, `crio-ID.scope`, `/docker/ID`).

use std::{
    collections::{HashMap, HashSet},
    fs,
    io::Read,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use ioreel_traces::{host::os_path, manifest::Container};
use serde::Deserialize;

use crate::CaptureError;

/// Largest file of a runtime that is read.
const MOST_BYTES: u64 = 16 << 20;
/// Number of control groups, and of containers, that are looked at.
const MOST: usize = 100_000;
/// Digits that an abbreviated id must have.
const LEAST_DIGITS: usize = 4;

/// A container, and the folder of its control group if it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// What its runtime says of it.
    pub container: Container,
    /// Its control group.
    pub folder: Option<PathBuf>,
}

/// All containers that the runtimes' state on disk and the control groups show.
pub fn containers() -> Vec<Found> {
    let groups = cgroup_root().map(|root| folders(&root)).unwrap_or_default();
    found(Path::new("/"), &groups)
}

/// The folder of the control group of a container, or of all containers of a pod, and what is known of these.
///
/// # Errors
/// If there is no such container, if it does not run, or if several match.
pub fn by_name(name: &str) -> Result<(PathBuf, Vec<Container>), CaptureError> {
    choose(name, containers()).map_err(|why| CaptureError::NoContainer { name: name.into(), why })
}

/// The folder of the control group of a unit of systemd. Without a suffix, a service is meant.
///
/// # Errors
/// If no control group has this name.
pub fn of_unit(unit: &str) -> Result<PathBuf, CaptureError> {
    let no = |why: &str| CaptureError::NoUnit { name: unit.into(), why: why.into() };
    let name = if unit.contains('.') { unit.to_owned() } else { format!("{unit}.service") };
    let root = cgroup_root().ok_or_else(|| no("no cgroup2 hierarchy is mounted"))?;
    let is_it = |folder: &PathBuf| folder.file_name().is_some_and(|n| n == name.as_str());
    let mut all = folders(&root).into_iter().filter(is_it);
    all.next().ok_or_else(|| no("no control group has this name, so the unit does not run"))
}

fn cgroup_root() -> Option<PathBuf> {
    let mount = ioreel_traces::host::mounts().into_iter().find(|m| m.fstype == "cgroup2")?;
    Some(os_path(&mount.mountpoint))
}

/// Folders of control groups, upper ones first.
fn folders(root: &Path) -> Vec<PathBuf> {
    let mut all = vec![root.to_path_buf()];
    let mut next = 0;
    while next < all.len() && all.len() < MOST {
        let entries = fs::read_dir(&all[next]).into_iter().flatten().flatten();
        let mut below: Vec<PathBuf> =
            entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()).collect();
        below.sort();
        all.append(&mut below);
        next += 1;
    }
    all
}

/// Containers in what runtimes keep below `root`, and ids in the names of control groups.
fn found(root: &Path, groups: &[PathBuf]) -> Vec<Found> {
    // What users keep comes last, so that it cannot give another name to a container of root.
    let read = [docker, podman, containerd, crio, podman_of_users].into_iter().flat_map(|read| read(root));
    let mut folder_of: HashMap<String, PathBuf> = HashMap::new();
    let mut nameless = Vec::new();
    for folder in groups {
        let Some((id, runtime)) = id_in(folder) else { continue };
        folder_of.entry(id.clone()).or_insert_with(|| folder.clone());
        nameless.push(Container { id, runtime, ..Container::default() });
    }
    let mut seen = HashSet::new();
    let all = read.chain(nameless).filter(|c| seen.insert(c.id.clone())).take(MOST);
    all.map(|container| Found { folder: folder_of.get(&container.id).cloned(), container }).collect()
}

/// The id of the container that a control group belongs to, and its runtime.
fn id_in(folder: &Path) -> Option<(String, String)> {
    let name = folder.file_name()?.to_str()?;
    let name = name.strip_suffix(".scope").unwrap_or(name);
    let (runtime, id) = name.rsplit_once('-').unwrap_or(("", name));
    let is_id = id.len() == 64 && id.bytes().all(|b| b.is_ascii_hexdigit());
    // The group of the program that watches a container.
    let watches = runtime.ends_with("conmon");
    let runtime = match runtime {
        "docker" => "docker",
        "libpod" => "podman",
        "cri-containerd" => "containerd",
        "crio" => "cri-o",
        _ if folder.parent().and_then(Path::file_name).is_some_and(|n| n == "docker") => "docker",
        _ => "",
    };
    (is_id && !watches).then(|| (id.to_owned(), runtime.to_owned()))
}

/// The only one that `name` means: a name, an id or its beginning, a pod (all its containers), `POD/CONTAINER` or
/// `NAMESPACE/POD`.
fn choose(name: &str, all: Vec<Found>) -> Result<(PathBuf, Vec<Container>), String> {
    let is_pod = |c: &Container| {
        let pod = c.pod.as_deref()?;
        let whole = format!("{}/{pod}", c.namespace.as_deref().unwrap_or_default());
        Some(name == pod || name == whole)
    };
    let in_pod = |c: &Container| c.pod.as_deref().is_some_and(|pod| name == format!("{pod}/{}", c.name));
    let begins = |c: &Container| name.len() >= LEAST_DIGITS && c.id.starts_with(name);
    let is_one = |c: &Container| c.name == name || c.id == name || in_pod(c);
    let by = |matches: &dyn Fn(&Container) -> bool| -> Vec<Found> {
        all.iter().filter(|f| matches(&f.container)).cloned().collect()
    };
    let mut them = by(&is_one);
    if them.is_empty() {
        them = by(&begins);
    }
    let pod = them.is_empty();
    if pod {
        them = by(&|c| is_pod(c) == Some(true));
    }
    if them.is_empty() {
        let known: Vec<&str> = all.iter().map(|f| &*f.container.name).filter(|n| !n.is_empty()).take(8).collect();
        let others =
            if known.is_empty() { "none is known here".into() } else { format!("known are {}", known.join(", ")) };
        return Err(format!("no container has this name or id; {others}"));
    }
    let (known, mut running): (Vec<Container>, Vec<PathBuf>) =
        them.into_iter().filter_map(|f| Some((f.container, f.folder?))).unzip();
    match running.len() {
        0 => Err("it does not run: it has no control group".into()),
        1 if !pod => Ok((running.remove(0), known)),
        _ if pod => {
            // Only the container that holds a pod's name spaces has no name.
            let named = all.iter().filter(|f| !f.container.name.is_empty());
            let others = named.filter_map(|f| f.folder.as_ref()).filter(|f| !running.contains(f));
            common(&running, others)
                .map(|folder| (folder, known))
                .ok_or_else(|| "its containers have no control group of their own in common; name one of them".into())
        }
        _ => {
            let ids: Vec<String> = known.iter().map(|c| c.id.chars().take(12).collect()).collect();
            Err(format!("several containers match: {}; give more of the id", ids.join(", ")))
        }
    }
}

/// The control group of a pod: the one above its containers, and above no others.
fn common<'a>(folders: &[PathBuf], mut others: impl Iterator<Item = &'a PathBuf>) -> Option<PathBuf> {
    let above = folders.first()?.parent()?;
    let all = folders.iter().all(|f| f.starts_with(above)) && !others.any(|f| f.starts_with(above));
    all.then(|| above.to_path_buf())
}

/// A JSON file that is not too large. Users decide what is in their homes, so a link, FIFO or device is not opened.
fn json<T: for<'a> Deserialize<'a>>(path: &Path) -> Option<T> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = fs::File::options().read(true).custom_flags(flags).open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(folder).into_iter().flatten().flatten().take(MOST);
    let mut all: Vec<PathBuf> = all.map(|e| e.path()).collect();
    all.sort();
    all
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Docker: `containers/ID/config.v2.json`.
fn docker(root: &Path) -> Vec<Container> {
    #[derive(Deserialize, Default)]
    #[serde(default, rename_all = "PascalCase")]
    struct Config {
        image: Option<String>,
    }
    #[derive(Deserialize)]
    struct Docker {
        #[serde(rename = "ID")]
        id: String,
        #[serde(rename = "Name", default)]
        name: String,
        #[serde(rename = "Config", default)]
        config: Config,
    }
    let read = |folder: PathBuf| {
        let d: Docker = json(&folder.join("config.v2.json"))?;
        let name = d.name.trim_start_matches('/').to_owned();
        Some(Container { id: d.id, name, image: d.config.image, runtime: "docker".into(), ..Container::default() })
    };
    entries(&root.join("var/lib/docker/containers")).into_iter().filter_map(read).collect()
}

/// Podman and other programs on containers/storage, of root.
fn podman(root: &Path) -> Vec<Container> {
    let storages = ["var/lib/containers/storage", "root/.local/share/containers/storage"];
    storages.into_iter().flat_map(|storage| stored(&root.join(storage))).collect()
}

/// Likewise, of each user.
fn podman_of_users(root: &Path) -> Vec<Container> {
    let homes = entries(&root.join("home"));
    homes.into_iter().flat_map(|home| stored(&home.join(".local/share/containers/storage"))).take(MOST).collect()
}

/// A storage of containers: `containers.json`.
fn stored(storage: &Path) -> Vec<Container> {
    #[derive(Deserialize)]
    struct Stored {
        id: String,
        #[serde(default)]
        names: Vec<String>,
        #[serde(default)]
        metadata: String,
    }
    #[derive(Deserialize, Default)]
    #[serde(default, rename_all = "kebab-case")]
    struct Metadata {
        image_name: Option<String>,
        pod_name: Option<String>,
    }
    let all: Vec<Stored> = json(&storage.join("overlay-containers/containers.json")).unwrap_or_default();
    let read = |s: Stored| {
        let more: Metadata = serde_json::from_str(&s.metadata).unwrap_or_default();
        let name = s.names.into_iter().next().unwrap_or_default();
        let pod = more.pod_name.filter(|p| !p.is_empty());
        Container { id: s.id, name, image: more.image_name, runtime: "podman".into(), pod, namespace: None }
    };
    all.into_iter().map(read).collect()
}

/// A runtime bundle of the Open Container Initiative.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Bundle {
    annotations: std::collections::BTreeMap<String, String>,
}

/// containerd: bundles in `task/NAMESPACE/ID/config.json`, for Kubernetes with annotations.
fn containerd(root: &Path) -> Vec<Container> {
    let mut all = Vec::new();
    for space in entries(&root.join("run/containerd/io.containerd.runtime.v2.task")) {
        // Docker's own are read above.
        for bundle in entries(&space).into_iter().filter(|_| !space.ends_with("moby")) {
            let Some(b) = json::<Bundle>(&bundle.join("config.json")) else { continue };
            let note = |key: &str| b.annotations.get(&format!("io.kubernetes.cri.{key}")).cloned();
            // The container that holds a pod's name spaces.
            if note("container-type").as_deref() == Some("sandbox") {
                continue;
            }
            let id = file_name(&bundle);
            all.push(Container {
                name: note("container-name").unwrap_or_else(|| id.clone()),
                image: note("image-name"),
                runtime: "containerd".into(),
                pod: note("sandbox-name"),
                namespace: note("sandbox-namespace"),
                id,
            });
        }
    }
    all
}

/// CRI-O: bundles in `overlay-containers/ID/userdata/config.json`.
fn crio(root: &Path) -> Vec<Container> {
    let mut all = Vec::new();
    for folder in entries(&root.join("run/containers/storage/overlay-containers")) {
        let Some(b) = json::<Bundle>(&folder.join("userdata/config.json")) else { continue };
        let note = |key: &str| b.annotations.get(key).cloned();
        let Some(name) = note("io.kubernetes.container.name") else { continue };
        if note("io.kubernetes.cri-o.ContainerType").as_deref() == Some("sandbox") {
            continue;
        }
        all.push(Container {
            id: file_name(&folder),
            name,
            image: note("io.kubernetes.cri-o.ImageName"),
            runtime: "cri-o".into(),
            pod: note("io.kubernetes.pod.name"),
            namespace: note("io.kubernetes.pod.namespace"),
        });
    }
    all
}

#[cfg(test)]
mod tests;
