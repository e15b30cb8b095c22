//! The examples do what they say.

use std::path::PathBuf;
use std::process::Command;

/// An example that was built with the tests.
fn example(name: &str) -> Command {
    let mut folder: PathBuf = std::env::current_exe().expect("this program has a name");
    folder.pop();
    folder.pop();
    Command::new(folder.join("examples").join(name))
}

#[test]
fn a_key_value_store_whose_reads_do_not_disturb_the_server() {
    let run = example("key_value").arg("demo").output().expect("it was built");
    let said = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(
        run.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&run.stderr)
    );
    for line in ["colour = green", "shape = (nothing)", "the peer disconnected"] {
        assert!(said.contains(line), "{line} is not in:\n{said}");
    }
}
