//! `nonic doctor`: what this machine and this process can do, and what would be better.
//!
//! [`facts`] collects, without judging and without changing anything; [`judge`] makes [`Finding`]s of that, in pure
//! functions that are tested. It refuses to guess: what cannot be seen from here is said to be unknown.

mod facts;
mod judge;

use crate::output;
use anyhow::{Result, bail};
use serde::Serialize;

/// Tell what this machine can do, and what would be better
///
/// Each line is ok, could be better (with what to try), or a problem that stops programs. Ends with exit code 1 if there is
/// a problem.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {}

/// What is found of one thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Finding {
    /// How it stands.
    state: State,
    /// Of what.
    subject: &'static str,
    /// What was found, in a few words.
    found: String,
    /// What to try, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

/// How something stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// Nothing to do.
    Ok,
    /// Programs run, but slower or with less.
    Better,
    /// Programs do not run.
    Problem,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::Better => "better",
            State::Problem => "PROBLEM",
        }
    }
}

impl Finding {
    fn ok(subject: &'static str, found: impl Into<String>) -> Self {
        Self {
            state: State::Ok,
            subject,
            found: found.into(),
            advice: None,
        }
    }

    fn better(subject: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            state: State::Better,
            advice: Some(advice.into()),
            ..Self::ok(subject, found)
        }
    }

    fn problem(subject: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            state: State::Problem,
            ..Self::better(subject, found, advice)
        }
    }
}

pub(crate) fn run(_: &Arguments, json: bool) -> Result<()> {
    let findings = judge::all(&facts::Facts::collect()?);
    let count = |state| findings.iter().filter(|finding| finding.state == state).count();
    let (problems, better) = (count(State::Problem), count(State::Better));
    if json {
        output::json(&serde_json::json!({
            "version": env!("CARGO_PKG_VERSION"),
            "problems": problems,
            "could_be_better": better,
            "findings": findings,
        }))?;
    } else {
        for finding in &findings {
            output::line(format_args!(
                "{:<8} {:<16} {}",
                finding.state.word(),
                finding.subject,
                finding.found
            ))?;
            if let Some(advice) = &finding.advice {
                output::line(format_args!("{:<25} -> {advice}", ""))?;
            }
        }
    }
    match problems {
        0 if json => Ok(()),
        0 => output::line(format_args!("programs can run; could be better: {better}")),
        1 => bail!("1 problem stops programs from running"),
        more => bail!("{more} problems stop programs from running"),
    }
}
