//! The thread that asks the processes, again and again, so that keys and drawing never wait for them.

use super::model::Sample;
use crate::inspect::{Gathered, gather};
use anyhow::{Context, Result};
use nonic::inspect::Request;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long one process may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// Asking takes at most one part in so many of the time: with very many queue pairs, the pauses grow.
const SHARE: u32 = 5;
/// The shortest pause.
const SHORTEST: Duration = Duration::from_millis(50);

/// Asks until it is dropped.
pub(super) struct Sampler {
    samples: Receiver<Result<Sample>>,
    /// Dropped to end the thread's pause.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    pub(super) fn start(pid: Option<u32>, interval: Duration) -> Result<Self> {
        let (sender, samples) = channel();
        let (stop, stopped) = channel::<()>();
        let ask = move || loop {
            let began = Instant::now();
            let sample = sample(pid);
            let failed = sample.is_err();
            if sender.send(sample).is_err() || failed {
                return;
            }
            let pause = interval.max(began.elapsed() * SHARE).max(SHORTEST);
            if stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        };
        let thread = std::thread::Builder::new()
            .name("nonic-top".to_owned())
            .spawn(ask)
            .context("cannot start a thread")?;
        Ok(Sampler {
            samples,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// The next sample.
    pub(super) fn wait(&self) -> Result<Sample> {
        self.samples.recv().context("the thread that asks has ended")?
    }

    /// What has come since the last time.
    pub(super) fn take(&self) -> impl Iterator<Item = Result<Sample>> {
        self.samples.try_iter()
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // If it panicked it has said so.
            let _ = thread.join();
        }
    }
}

fn sample(pid: Option<u32>) -> Result<Sample> {
    let devices_at = Instant::now();
    let devices = gather(Request::Devices, pid, PATIENCE)?;
    let at = Instant::now();
    let Gathered { answers, .. } = gather(Request::QueuePairs, pid, PATIENCE)?;
    Ok(Sample {
        devices_at,
        devices,
        at,
        queue_pairs: answers,
    })
}
