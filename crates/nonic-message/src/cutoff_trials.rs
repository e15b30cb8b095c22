//! The cut-off: from which length on the receiver had better READ a message than get it in a frame, measured on the path itself.
//!
//! A frame costs a copy on the way to the wire and, through a receive, out of it; an offered message costs a
//! registration and one more trip. Which is less depends on the processor, the wire and whether the two ends share a
//! host. So the side that connects sends trials of growing lengths both ways, one at a time, until reading is quicker
//! at two lengths in a row, and tells the other side. If the peer is too slow to answer, the usual length is used.

use crate::cutoff::Cutoff;
use crate::driver::Shared;
use crate::error::Error;
use crate::message::Source;
use crate::protocol::HEADER_BYTES;
use nonic::background;
use std::future::poll_fn;
use std::task::Poll;
use std::time::{Duration, Instant};

/// Trials of one length, each way.
const REPETITIONS: usize = 10;
/// So many lengths in a row must be read more quickly before it is believed.
const CONVINCED: u32 = 2;
/// The shortest length that is tried.
const SHORTEST: usize = 256;
/// All trials together take no longer.
const PATIENCE: Duration = Duration::from_millis(100);

/// Measures it. An error is that the channel has ended.
pub(crate) async fn measure(shared: &Shared) -> Result<Cutoff, Error> {
    let measured = background::before(Instant::now() + PATIENCE, try_lengths(shared)).await;
    measured.unwrap_or_else(|| Ok(Cutoff::default()))
}

/// Takes as long as it takes.
async fn try_lengths(shared: &Shared) -> Result<Cutoff, Error> {
    let longest = shared.with(|state| {
        state.machine.set_cutoff(u64::MAX);
        state.machine.cutoff() as usize
    });
    // Shorter ones are not worth a key, whatever a busy machine makes of the trials.
    let mut cutoff = SHORTEST.min(longest);
    let (mut length, mut slower) = (cutoff, 0);
    loop {
        let (framed, read) = quickest(shared, length).await?;
        if framed <= read {
            (cutoff, slower) = (length, 0);
        } else {
            slower += 1;
        }
        if slower == CONVINCED || length == longest {
            return Ok(Cutoff::measured(cutoff as u64));
        }
        // Steps of about 1.4, so that the answer is not far off.
        let step = if length.is_power_of_two() {
            length / 2
        } else {
            length / 3
        };
        length = (length + step).min(longest);
    }
}

/// The shortest times of trials of this length, in a frame and read. They take turns, and the shortest count: whatever
/// else the machine does makes times longer, never shorter.
async fn quickest(shared: &Shared, length: usize) -> Result<(Duration, Duration), Error> {
    let mut shortest = [Duration::MAX; 2];
    for _ in 0..REPETITIONS {
        for (time, read) in shortest.iter_mut().zip([false, true]) {
            let start = Instant::now();
            trial(shared, length, read).await?;
            *time = start.elapsed().min(*time);
        }
    }
    Ok((shortest[0], shortest[1]))
}

/// One trial.
async fn trial(shared: &Shared, length: usize, read: bool) -> Result<(), Error> {
    debug_assert!(length <= u32::MAX as usize - HEADER_BYTES);
    let mut begun = false;
    poll_fn(|context| {
        shared.poll_with(context, |state| {
            if !begun {
                match state.can_send(None) {
                    Ok(true) => {}
                    Ok(false) => return Poll::Pending,
                    Err(error) => return Poll::Ready(Err(error)),
                }
                // As a program does that has its message in a registered buffer.
                let lease = match state.buffer(length) {
                    Ok(lease) => lease,
                    Err(error) => return Poll::Ready(Err(error)),
                };
                let (payload, remote) = match read {
                    false => (state.framed(Source::Lease(lease)), None),
                    true => match state.offered(Source::Lease(lease)) {
                        Ok((payload, remote)) => (Ok(payload), Some(remote)),
                        Err(error) => (Err(error), None),
                    },
                };
                match payload {
                    Ok(payload) => state.machine.send_trial(payload, length as u64, remote),
                    Err(error) => return Poll::Ready(Err(error)),
                }
                begun = true;
                return Poll::Pending;
            }
            if state.lost.is_some() {
                return Poll::Ready(Err(state.ended()));
            }
            match state.machine.in_trial() {
                true => Poll::Pending,
                false => Poll::Ready(Ok(())),
            }
        })
    })
    .await
}
