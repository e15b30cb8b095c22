//! How a program ended, for the tests of every C library.

use std::path::Path;
use std::process::Output;

/// What a program printed, after seeing that it succeeded.
pub(crate) fn succeeded(output: &Output, what: &str) -> String {
    assert!(
        output.status.success(),
        "{what}: {}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Says that a test cannot be made here; in CI that is a failure.
pub(crate) fn missing(file: &str) -> bool {
    if Path::new(file).exists() {
        return false;
    }
    assert!(
        std::env::var_os("CI").is_none(),
        "CI cannot run this test: {file} is not installed"
    );
    eprintln!("NOT TESTED: {file} is not installed");
    true
}
