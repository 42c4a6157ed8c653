//! Pages in a headless Chromium, with what the browser asked the network for.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

/// A browser that does not answer in this time is stuck.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a page became.
pub(crate) struct Page {
    /// The document after all scripts.
    pub(crate) dom: String,
    /// What the test's script returned.
    pub(crate) result: Value,
    /// URLs that the browser requested and that are neither files nor data.
    pub(crate) requested: Vec<String>,
}

/// Shows a page, with `script` run in it once it is ready: the body of an async function whose result is
/// JSON. `dir` is for the browser's own files.
pub(crate) fn visit(page: &Path, script: &str, dir: &Path) -> Page {
    let html = fs::read_to_string(page).unwrap();
    let nonce = html.split("<script nonce=\"").nth(1).and_then(|s| s.split('"').next()).expect("the page has a nonce");
    let runner = format!(
        r#"<script nonce="{nonce}">
// Headless and without a screen there are no frames to wait for.
window.requestAnimationFrame = (run) => setTimeout(() => run(performance.now()), 5);
(async () => {{
  const out = document.createElement('pre');
  out.id = 'result';
  const root = document.documentElement;
  const pause = (ms) => new Promise((done) => setTimeout(done, ms));
  const pointer = (target, type, x, y, more) =>
    target.dispatchEvent(new PointerEvent(type, {{ clientX: x, clientY: y, bubbles: true, pointerId: 1, button: 0, ...more }}));
  try {{
    while (!root.dataset.ready) await pause(10);
    out.textContent = JSON.stringify(await (async () => {{ {script} }})()) ?? 'null';
  }} catch (e) {{
    out.textContent = JSON.stringify({{ error: String(e && e.stack || e) }});
  }}
  document.body.append(out);
}})();
</script></body>"#
    );
    let (head, tail) = html.rsplit_once("</body>").expect("a page has a body");
    let tested = dir.join("tested.html");
    fs::write(&tested, format!("{head}{runner}{tail}")).unwrap();
    let (dom, requested) = show(&format!("file://{}", tested.display()), dir);
    let text = dom.split("<pre id=\"result\">").nth(1).and_then(|s| s.split("</pre>").next());
    let text = text.unwrap_or_else(|| panic!("the test's script did not end: {}", &dom[..dom.len().min(2000)]));
    let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&nbsp;", "\u{a0}").replace("&amp;", "&");
    let result: Value = serde_json::from_str(&text).unwrap();
    assert!(result.get("error").is_none(), "in the page: {}", result["error"]);
    Page { dom, result, requested }
}

/// The document at `url` after its scripts, and what it asked the network for.
pub(crate) fn show(url: &str, dir: &Path) -> (String, Vec<String>) {
    let log = dir.join("net.json");
    let profile = tempfile::tempdir_in(dir).unwrap();
    let mut browser = Command::new("chromium");
    browser
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
        .args([
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-extensions",
        ])
        .args([
            "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
            "--virtual-time-budget=30000",
            "--window-size=1200,900",
        ])
        .arg(format!("--log-net-log={}", log.display()))
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg("--dump-dom")
        .arg(url);
    let out = dir.join("dom.html");
    let mut child = browser
        .stdout(fs::File::create(&out).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .expect("chromium; scripts/setup test installs it");
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success(), "chromium: {status}");
            break;
        }
        if begun.elapsed() > PATIENCE {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("chromium did not end within {PATIENCE:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let dom = fs::read_to_string(&out).unwrap();
    (dom, requested(&log))
}

/// What pages asked for; the browser itself asks its makers for updates, with no page as the initiator.
fn requested(log: &Path) -> Vec<String> {
    let log: Value = serde_json::from_slice(&fs::read(log).unwrap()).unwrap();
    let events = log["events"].as_array().unwrap();
    let asked =
        events.iter().map(|e| &e["params"]).filter(|p| p["initiator"].as_str().is_some_and(|i| i != "not an origin"));
    let urls = asked
        .filter_map(|p| p["url"].as_str())
        .filter(|url| !["file:", "data:"].iter().any(|own| url.starts_with(own)));
    urls.map(str::to_owned).collect()
}
