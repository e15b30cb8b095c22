//! fio: its jobs on the disk, and its report of them.
//!
//! fio exits well when it has compared nothing, so its exit status is not enough: [`Report::check`] counts bytes. It reads them
//! from the JSON, because the summary for people leaves out what was read back between writes.
//!
//! Read first: [`Job`], then [`Report`].

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Where fio leaves its report in the guest. Its output would mix it with warnings.
const REPORT: &str = "/tmp/fio.json";

/// Writes a file at random places in rounds, and reads it back and compares: what is complete already while it writes, and the
/// rest of the round before the next one.
#[derive(Copy, Clone)]
pub(super) struct Job {
    /// The shortest and the longest block.
    pub(super) blocks: &'static str,
    /// Bytes of a round, in MiB.
    pub(super) round_mib: u64,
    /// How long there are rounds; without it there is one.
    pub(super) seconds: Option<u64>,
}

impl Job {
    /// Runs it, and prints the report if that went well.
    pub(super) fn line(&self, file: &str) -> String {
        let Job {
            blocks,
            round_mib,
            seconds,
        } = self;
        let duration = seconds.map_or(String::new(), |seconds| {
            format!("--time_based --runtime={seconds}")
        });
        format!(
            "fio --name=verify --filename={file} --size={round_mib}M --ioengine=libaio --direct=1 --rw=randwrite \
             --bsrange={blocks} --iodepth=32 --verify=crc32c --verify_fatal=1 --verify_backlog=16 {duration} \
             --output-format=json --output={REPORT} && cat {REPORT}"
        )
    }
}

/// What was done.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Report {
    errors: u64,
    written: u64,
    /// Everything that was read was compared: the job reads for nothing else.
    compared: u64,
}

impl Report {
    /// Reads fio's JSON.
    pub(super) fn parse(json: &str) -> Result<Self> {
        let report: Value = serde_json::from_str(json).context("fio's report is no JSON")?;
        let number = |path: &str| {
            let number = report.pointer(path).and_then(Value::as_u64);
            number.with_context(|| format!("fio's report has no {path}"))
        };
        Ok(Report {
            errors: number("/jobs/0/error")?,
            written: number("/jobs/0/write/io_bytes")?,
            compared: number("/jobs/0/read/io_bytes")?,
        })
    }

    /// Whether the job has written all it should, and compared what it has written. Time may end the last round before it was
    /// compared; all others were.
    pub(super) fn check(&self, job: &Job) -> Result<()> {
        let Report {
            errors,
            written,
            compared,
        } = *self;
        let round = job.round_mib << 20;
        let left_over = if job.seconds.is_some() { round } else { 0 };
        ensure!(errors == 0, "fio found errors: {errors}");
        ensure!(written >= round, "fio has written {written} bytes of {round}");
        ensure!(
            compared > 0 && compared + left_over >= written,
            "fio has compared {compared} bytes of the {written} it has written"
        );
        Ok(())
    }

    /// For people.
    pub(super) fn summary(&self) -> String {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        format!(
            "{:.1} MiB written, {:.1} MiB read back and compared",
            mib(self.written),
            mib(self.compared)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND: Job = Job {
        blocks: "4k-1m",
        round_mib: 1,
        seconds: None,
    };

    fn report(written: u64, compared: u64) -> Report {
        let json = format!(
            r#"{{"jobs":[{{"error":0,"read":{{"io_bytes":{compared}}},"write":{{"io_bytes":{written}}}}}]}}"#
        );
        Report::parse(&json).expect("fio writes like this")
    }

    #[test]
    fn one_round_must_be_written_and_compared_as_a_whole() {
        assert!(report(1 << 20, 1 << 20).check(&ROUND).is_ok());
        assert!(report(1 << 20, (1 << 20) - 1).check(&ROUND).is_err());
        assert!(report(4096, 4096).check(&ROUND).is_err());
    }

    #[test]
    fn when_the_time_is_over_only_the_last_round_may_not_have_been_compared() {
        let job = Job {
            seconds: Some(5),
            ..ROUND
        };
        assert!(report(3 << 20, 2 << 20).check(&job).is_ok());
        assert!(report(3 << 20, (2 << 20) - 1).check(&job).is_err());
        assert!(report(1 << 20, 0).check(&job).is_err());
    }

    #[test]
    fn a_report_without_numbers_is_none() {
        assert!(Report::parse("{}").is_err());
        assert!(Report::parse("fio: broken").is_err());
    }
}
