//! Linux's rxe beside nonic, in a guest: what `cargo xtask interop --beside` measures, as a table of this page.

use super::probe::significant;
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use testbed::table::Table;

/// A guest takes 5 s to boot and its emulated processors a few minutes for the rest.
const PATIENCE: Duration = Duration::from_secs(1200);

/// Runs it, in a process of its own since the lab needs its own namespaces.
pub(super) fn measure(dist: &Path) -> Result<Value> {
    eprintln!("in a guest, beside rxe");
    let program = std::env::current_exe().context("this program has no name")?;
    let mut command = Command::new("timeout");
    // With the chore its guest ends too, whatever it does just then.
    command
        .args(["--kill-after=10", &PATIENCE.as_secs().to_string()])
        .arg(program);
    command
        .args(["interop", "--beside", "--json", "--dist"])
        .arg(dist);
    let output = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cannot start timeout")?;
    anyhow::ensure!(output.status.success(), "the guest's comparison failed");
    serde_json::from_slice(&output.stdout).context("the guest's comparison printed no JSON")
}

/// What the report has instead of figures.
pub(super) fn failed(error: &anyhow::Error) -> Value {
    serde_json::json!({ "rows": [], "failed": format!("{error:#}") })
}

/// As a part of the page.
pub(super) fn markdown(found: &Value) -> String {
    let text = "## Beside rxe in one guest\n\n\
        `cargo xtask interop --beside`: nonic and Linux's own driver in one guest, between two local addresses. The guest's \
        processors are emulated, so the figures mean nothing and their ratios a little. (siw, Linux's driver for iWARP, is \
        not part of Debian's kernels.)\n\n"
        .to_owned();
    let mut table = Table::new(["", "nonic", "rxe", "nonic is ahead", "must show", "met"]);
    if let Some(complaint) = found["failed"].as_str() {
        table.add_title(format!("not measured: {complaint}"));
    }
    for row in found["rows"].as_array().map_or(&[][..], Vec::as_slice) {
        let (command, unit) = (word(&row["command"]), word(&row["unit"]));
        let figure = |name: &str| row[name].as_f64().unwrap_or(f64::NAN);
        let [nonic, rxe, ahead] = ["nonic", "rxe", "nonic_is_ahead"].map(figure);
        table.add([
            format!("`{command}`"),
            format!("{} {unit}", significant(nonic)),
            format!("{} {unit}", significant(rxe)),
            format!("{} ×", significant(ahead)),
            "ahead".to_owned(),
            if ahead > 1.0 { "yes" } else { "**no**" }.to_owned(),
        ]);
    }
    text + &table.markdown()
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_row_is_met_if_nonic_is_ahead() {
        let row = |ahead: f64| json!({ "command": "ib_x -n 5", "unit": "µs", "nonic": 2.0, "rxe": 1.0, "nonic_is_ahead": ahead });
        let text = markdown(&json!({ "rows": [row(0.5), row(1.5)] }));
        assert!(
            text.contains("| `ib_x -n 5` | 2.00 µs | 1.00 µs | 0.50 × | ahead | **no** |"),
            "{text}"
        );
        assert!(text.contains("| 1.50 × | ahead | yes |"), "{text}");
    }
}
