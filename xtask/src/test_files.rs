//! A check for forgotten test files. The integration tests of a crate are one binary, `tests/main.rs`, which is linked
//! once. Cargo does not look for others (`autotests = false`), so a file that is not declared there would never run:
//! this finds it.

#[test]
fn every_file_of_tests_is_declared() {
    let crates = crate::dist::workspace().join("crates");
    let mut undeclared = Vec::new();
    for package in std::fs::read_dir(crates).expect("a folder of crates") {
        let tests = package.expect("readable").path().join("tests");
        let Ok(main) = std::fs::read_to_string(tests.join("main.rs")) else {
            continue;
        };
        for file in std::fs::read_dir(&tests).expect("a folder of tests") {
            let path = file.expect("readable").path();
            let name = path
                .file_stem()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            let is_module =
                path.extension().is_some_and(|extension| extension == "rs") || path.join("mod.rs").exists();
            if is_module && name != "main" && !main.contains(&format!("mod {name};")) {
                undeclared.push(path);
            }
        }
    }
    assert!(
        undeclared.is_empty(),
        "not declared in tests/main.rs: {undeclared:?}"
    );
}
