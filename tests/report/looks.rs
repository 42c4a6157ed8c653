//! How a page looks and behaves: tooltips under a moving window, narrow screens, paper.

use std::process::Command;

use crate::{browser::visit, page, reels};

#[test]
fn the_tooltip_follows_the_window() {
    let dir = tempfile::tempdir().unwrap();
    let html = page(&reels::full(dir.path(), "plain"), dir.path(), &[]);
    let script = r#"
      const tip = document.getElementById('tip');
      const canvas = document.querySelector('canvas[data-panel="throughput"]');
      canvas.scrollIntoView();
      await pause(50);
      const box = canvas.getBoundingClientRect();
      const at = (share) => box.left + 92 + (box.width - 92 - 16) * share;
      pointer(canvas, 'pointermove', at(0.6), box.top + 40);
      const told = () => (tip.hidden ? 'hidden' : tip.textContent);
      const out = [told()];
      canvas.dispatchEvent(new WheelEvent('wheel', { clientX: at(0.2), clientY: box.top + 40, deltaY: -480, bubbles: true, cancelable: true }));
      await pause(150);
      out.push(told());
      document.getElementById('whole').click();
      await pause(150);
      out.push(told());
      pointer(canvas, 'pointerleave', at(0.6), box.top + 40);
      out.push(told());
      return out;
    "#;
    let r = visit(&html, script, dir.path()).result;
    assert!(r[0] != "hidden" && r[1] != "hidden" && r[0] != r[1], "{r}");
    assert_eq!((&r[0], r[3].as_str()), (&r[2], Some("hidden")));
}

/// A selection limits the tables to what it contains; panels out of sight are drawn when the window has stopped moving.
#[test]
fn a_selection_limits_the_tables_and_nothing_stays_stale() {
    let dir = tempfile::tempdir().unwrap();
    let html = page(&reels::full(dir.path(), "plain"), dir.path(), &[]);
    let script = r#"
      const rows = () => document.querySelectorAll('#table tbody tr').length;
      const canvases = [...document.querySelectorAll('#panels canvas')];
      const last = canvases[canvases.length - 1];
      const seen = () => last.toDataURL();
      document.querySelector('[data-tab="operations"]').click();
      const out = [rows()];
      const canvas = document.querySelector('canvas[data-panel="throughput"]');
      canvas.scrollIntoView();
      const box = canvas.getBoundingClientRect();
      const at = (share) => box.left + 92 + (box.width - 92 - 16) * share;
      pointer(canvas, 'pointerdown', at(0.1), box.top + 40);
      pointer(canvas, 'pointermove', at(0.12), box.top + 40);
      pointer(canvas, 'pointerup', at(0.12), box.top + 40);
      await pause(400);
      out.push(rows(), document.querySelector('#table .told').textContent);
      document.getElementById('clear').click();
      await pause(400);
      out.push(rows());
      window.scrollTo(0, 0);
      const whole = seen();
      document.getElementById('in').click();
      await pause(800);
      out.push(seen() !== whole);
      document.getElementById('whole').click();
      await pause(800);
      out.push(seen() === whole, document.getElementById('notes').open);
      return out;
    "#;
    let r = visit(&html, script, dir.path()).result;
    assert!(r[1].as_u64() <= r[0].as_u64() && r[0] == r[3], "{r}");
    assert!(r[2].as_str().unwrap().contains("only those of the selection"), "{r}");
    assert_eq!((&r[4], &r[5], &r[6]), (&true.into(), &true.into(), &false.into()), "{r}");
}

/// Prints the page, and counts the pages of the document and its pictures by what the file says.
#[test]
fn a_page_can_be_printed() {
    let dir = tempfile::tempdir().unwrap();
    let html = page(&reels::full(dir.path(), "plain"), dir.path(), &[]);
    let pdf = dir.path().join("page.pdf");
    let done = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--virtual-time-budget=10000"])
        .arg(format!("--user-data-dir={}", dir.path().join("profile").display()))
        .arg(format!("--print-to-pdf={}", pdf.display()))
        .arg(format!("file://{}", html.display()))
        .output()
        .expect("chromium; scripts/setup test installs it");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let pdf = String::from_utf8_lossy(&std::fs::read(pdf).unwrap()).into_owned();
    assert!(pdf.starts_with("%PDF") && pdf.contains("/Image"), "canvases are in it");
}
