//! Proves that the simulator finds bugs: breaks the NIC on purpose, one patch at a time, and expects a seed
//! to fail. What no simulation shows, the tests of the core must notice. The patches are in `crates/nonic-sim/mutations`; what they
//! are is in `MUTATIONS.md` there.
//!
//! The checkout is left alone: everything happens in a copy of its tracked files.

use anyhow::{Context, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const PATCHES: &str = "crates/nonic-sim/mutations";

/// What the names of those begin with that the tests of the core must notice.
const RULES: &str = "rules-";

/// What to try.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// How many seeds a bug may take to be found.
    #[arg(long, default_value_t = 20_000)]
    seeds: u64,
    /// Names of patches, or how they begin; all of them if none is given.
    names: Vec<String>,
}

/// Runs every mutation; fails if one is not found.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let root = workspace()?;
    let tree = std::env::temp_dir().join(format!("nonic-mutants-{}", std::process::id()));
    copy_tracked(&root, &tree)?;
    let outcome = try_all(options, &root, &tree);
    fs::remove_dir_all(&tree).with_context(|| format!("cannot remove {}", tree.display()))?;
    outcome
}

fn try_all(options: &Options, root: &Path, tree: &Path) -> anyhow::Result<()> {
    let patches = patches(options, root)?;
    let is_rule = |(name, _): &(String, PathBuf)| name.starts_with(RULES);
    if !patches.iter().all(is_rule) {
        let failure = finds("", options.seeds.min(500), root, tree)?;
        ensure!(failure.is_none(), "the simulator fails without any mutation");
    }
    if patches.iter().any(is_rule) {
        let failure = breaks_a_rule(root, tree)?;
        ensure!(failure.is_none(), "a test of the core fails without any mutation");
    }
    let mut survivors = Vec::new();
    for (name, patch) in patches {
        apply(&patch, tree, &[])?;
        let found = match name.starts_with(RULES) {
            true => breaks_a_rule(root, tree),
            false => finds(&name, options.seeds, root, tree),
        };
        apply(&patch, tree, &["--reverse"])?;
        match found {
            Ok(Some(failure)) => println!("{name}: {failure}"),
            Ok(None) => {
                println!("{name}: NOT FOUND");
                survivors.push(name);
            }
            // The others are worth knowing of.
            Err(error) => {
                println!("{name}: {error:#}");
                survivors.push(name);
            }
        }
    }
    ensure!(survivors.is_empty(), "not found: {}", survivors.join(", "));
    Ok(())
}

fn workspace() -> anyhow::Result<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    Ok(own.parent().context("xtask lies in the workspace")?.to_owned())
}

fn copy_tracked(root: &Path, tree: &Path) -> anyhow::Result<()> {
    let listed = Command::new("git")
        .args(["ls-files", "-z"])
        .current_dir(root)
        .output()
        .context("cannot start git")?;
    ensure!(listed.status.success(), "git ls-files failed");
    let names = String::from_utf8(listed.stdout).context("a tracked file has a strange name")?;
    for name in names.split_terminator('\0') {
        let (from, to) = (root.join(name), tree.join(name));
        if !from.is_file() {
            continue;
        }
        fs::create_dir_all(to.parent().context("a tracked file lies in a folder")?)?;
        fs::copy(&from, &to).with_context(|| format!("cannot copy {name}"))?;
    }
    Ok(())
}

/// Name and path of each patch asked for.
fn patches(options: &Options, root: &Path) -> anyhow::Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root.join(PATCHES))? {
        let path = entry?.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        let Some(name) = stem.filter(|_| path.extension().is_some_and(|extension| extension == "patch"))
        else {
            continue;
        };
        if options.names.is_empty() || options.names.iter().any(|asked| name.starts_with(asked)) {
            found.push((name.to_owned(), path));
        }
    }
    found.sort();
    if found.is_empty() {
        bail!("no such mutation in {PATCHES}");
    }
    Ok(found)
}

fn apply(patch: &Path, tree: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let status = Command::new("git")
        .arg("apply")
        .args(arguments)
        .arg(patch)
        .current_dir(tree)
        .status()
        .context("cannot start git")?;
    ensure!(status.success(), "{} does not apply any more", patch.display());
    Ok(())
}

/// Builds the simulator in `tree` and runs it; what it found first, if anything. Bugs of the connection manager are
/// looked for among connections, those of the window's fairness among processes that share an address, those of iWARP among
/// streams, those of the window law in networks at size.
fn finds(name: &str, seeds: u64, root: &Path, tree: &Path) -> anyhow::Result<Option<String>> {
    let target = root.join("target/mutants");
    let built = Command::new(env!("CARGO"))
        .args([
            "build",
            "--release",
            "--quiet",
            "--package",
            "nonic-sim",
            "--example",
            "sim",
        ])
        .env("CARGO_TARGET_DIR", &target)
        // Each mutation is built anew and runs for seconds: build fast rather than well.
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
        .env("CARGO_PROFILE_RELEASE_INCREMENTAL", "true")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "0")
        // Mutations leave things unused.
        .env("RUSTFLAGS", "--allow warnings")
        .current_dir(tree)
        .status()
        .context("cannot start cargo")?;
    ensure!(built.success(), "the simulator does not build");
    let output = Command::new(target.join("release/examples/sim"))
        .args(name.starts_with("cm-").then_some("--connections"))
        .args(name.starts_with("share-").then_some("--shares"))
        .args(name.starts_with("iwarp-").then_some("--iwarp"))
        .args(name.starts_with("messages-").then_some("--messages"))
        .args(name.starts_with("network-").then_some("--network"))
        .args(["--seeds", &seeds.to_string(), "--failures", "1"])
        .output()
        .context("cannot start the simulator")?;
    if output.status.success() {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(Some(
        text.lines().next().unwrap_or("failed without a word").to_owned(),
    ))
}

/// Runs the tests of the core in `tree`; the first that fails, if one does.
fn breaks_a_rule(root: &Path, tree: &Path) -> anyhow::Result<Option<String>> {
    let test = |arguments: &[&str]| {
        Command::new(env!("CARGO"))
            .args([
                "test",
                "--package",
                "nonic-core",
                "--lib",
                "--test",
                "integration",
            ])
            .args(arguments)
            .env("CARGO_TARGET_DIR", root.join("target/mutants"))
            .env("RUSTFLAGS", "--allow warnings")
            .current_dir(tree)
            .output()
            .context("cannot start cargo")
    };
    let built = test(&["--no-run"])?;
    ensure!(
        built.status.success(),
        "the tests do not build: {}",
        String::from_utf8_lossy(&built.stderr)
    );
    let output = test(&["--no-fail-fast"])?;
    if output.status.success() {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let failed = text.lines().find(|line| line.ends_with("FAILED"));
    Ok(Some(failed.unwrap_or("failed without a word").to_owned()))
}
