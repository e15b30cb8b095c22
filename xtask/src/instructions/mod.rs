//! Instructions: how long the way is from `ibv_post_send` to the peer, and from the peer to `ibv_poll_cq`, on one host.
//!
//! Time differs from machine to machine and from minute to minute; instructions that callgrind counts differ by a few in a
//! hundred, so they can be judged in CI. What was found last stands in docs/performance.md (`--report` writes it). Without that, a
//! count that is a tenth higher than there fails.
//!
//! The client runs under callgrind, the server does not (`instructions.c`). It counts what one thread does in one call: the library's
//! own thread, which works while the program sleeps, is not seen.

use crate::c_program;
use crate::dist::{self, Dist};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use testbed::packages;
use testbed::page::Part;
use testbed::process::Process;
use testbed::table::Table;
use testbed::workspace::workspace;

const SOURCE: &str = include_str!("instructions.c");

/// Calls of which the first tenth is not counted.
const CALLS: u32 = 2_000;
/// Runs of which the least counts: what the library's own thread does meanwhile only adds to it.
const RUNS: u32 = 3;
/// A count may be so many times what is written down.
const MOST_TIMES: f64 = 1.1;

/// What to do with the counts.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Write them to performance.md in this folder instead of judging them
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = "docs")]
    report: Option<PathBuf>,
    /// Print JSON, for scripts
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    dist: dist::Chosen,
}

/// One call of one operation.
struct Call {
    title: &'static str,
    operation: &'static str,
    part: &'static str,
    size: u32,
}

const fn call(title: &'static str, operation: &'static str, part: &'static str, size: u32) -> Call {
    Call {
        title,
        operation,
        part,
        size,
    }
}

const COUNTED: [Call; 7] = [
    call("64 B SEND: `ibv_post_send`", "send", "post", 64),
    call(
        "64 B SEND: `ibv_poll_cq` that finds the answer",
        "send",
        "poll",
        64,
    ),
    call("64 B SEND: `ibv_poll_cq` that finds nothing", "send", "empty", 64),
    call("64 B WRITE: `ibv_post_send`", "write", "post", 64),
    call("64 B WRITE: `ibv_poll_cq`", "write", "poll", 64),
    call("64 KiB WRITE: `ibv_post_send`", "write", "post", 65536),
    call("64 B READ: `ibv_post_send`", "read", "post", 64),
];

pub(crate) fn run(options: &Options) -> Result<()> {
    let dist = options.dist.get()?;
    packages::install(&[("/usr/bin/valgrind", "valgrind")])?;
    let program = c_program::compile("instructions", SOURCE, &["-libverbs"])?;
    let mut counts = Vec::new();
    for call in &COUNTED {
        let runs: Result<Vec<u64>> = (0..RUNS).map(|_| count(&dist, &program, call)).collect();
        let least = runs.with_context(|| call.title)?.into_iter().min();
        counts.push(least.context("there was a run")?);
    }
    if options.json {
        let rows = COUNTED.iter().zip(&counts);
        let json: serde_json::Map<_, _> = rows
            .map(|(call, count)| (call.title.to_owned(), (*count).into()))
            .collect();
        println!("{}", serde_json::Value::from(json));
        return Ok(());
    }
    let table = table(&counts);
    if let Some(docs) = &options.report {
        return part().write(docs, &table);
    }
    println!("{table}");
    let page = std::fs::read_to_string(workspace().join("docs/performance.md"))?;
    judge(part().read(&page)?, &counts)
}

fn part() -> Part {
    Part::found_by("performance.md", "instructions --report")
}

fn table(counts: &[u64]) -> String {
    let mut table = Table::new(["call", "instructions"]);
    for (call, count) in COUNTED.iter().zip(counts) {
        table.add([call.title.to_owned(), count.to_string()]);
    }
    table.markdown()
}

/// Compares what was counted with what is written down.
fn judge(written: &str, counts: &[u64]) -> Result<()> {
    let mut longer = Vec::new();
    for (call, count) in COUNTED.iter().zip(counts) {
        let row = written.lines().find(|line| line.contains(call.title));
        let cell = row.and_then(|row| row.trim_end_matches('|').rsplit('|').next());
        let known: u64 = cell
            .and_then(|cell| cell.trim().parse().ok())
            .with_context(|| format!("docs/performance.md does not tell of {}", call.title))?;
        if *count as f64 > known as f64 * MOST_TIMES {
            longer.push(format!("{}: {count} instead of {known}", call.title));
        }
    }
    ensure!(
        longer.is_empty(),
        "longer than docs/performance.md says (if that is meant: cargo xtask instructions --report): {}",
        longer.join("; ")
    );
    Ok(())
}

/// Instructions of one call, the average of many.
fn count(dist: &Dist, program: &Path, call: &Call) -> Result<u64> {
    let folder = program.parent().context("it is in a folder")?;
    let mut command = Command::new(dist.nonic());
    command.env("NONIC_LOOPBACK", "only");
    command.args([
        "run",
        "--",
        "valgrind",
        "--tool=callgrind",
        "--collect-atstart=no",
    ]);
    let (profile, log) = (folder.join("callgrind.out"), folder.join("callgrind.log"));
    command.arg(format!("--callgrind-out-file={}", profile.display()));
    command.arg(format!("--log-file={}", log.display()));
    command.arg(program).args([call.operation, call.part]);
    command.args([CALLS, call.size].map(|number| number.to_string()));
    let printed = Process::start(&mut command)?.finish()?;
    let operations: u64 = printed
        .trim()
        .parse()
        .context("the program counts its operations")?;
    let collected = collected(&std::fs::read_to_string(log)?).context("callgrind tells no count")?;
    ensure!(operations > 0, "nothing was counted");
    Ok(collected / operations)
}

/// Callgrind's summary has a line `==123== Collected : 3719438`.
fn collected(printed: &str) -> Option<u64> {
    let line = printed.lines().find(|line| line.contains("Collected : "))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_found_in_what_callgrind_prints() {
        let printed = "==1== Events    : Ir\n==1== Collected : 3719438\n==1== \n";
        assert_eq!(collected(printed), Some(3_719_438));
        assert_eq!(collected("==1== killed\n"), None);
    }

    #[test]
    fn a_tenth_more_than_was_written_down_is_too_much() {
        let written = table(&[1000; COUNTED.len()]);
        assert!(judge(&written, &[1099; COUNTED.len()]).is_ok());
        let error = judge(&written, &[1101; COUNTED.len()]).expect_err("they are more");
        assert!(error.to_string().contains("1101 instead of 1000"), "{error}");
        assert!(judge("", &[1; COUNTED.len()]).is_err());
    }

    #[test]
    fn the_page_tells_of_every_call() {
        let page =
            std::fs::read_to_string(workspace().join("docs/performance.md")).expect("the page is there");
        judge(part().read(&page).expect("it has the part"), &[0; COUNTED.len()])
            .expect("every call is told of");
    }
}
