//! Lingering: dropped streams whose last bytes are still on their way.
//!
//! With TCP the kernel sees to them. Here a background task does ([`nonic::background`]). It gives a stream up after
//! [`LINGER`]. While there are [`MOST`] of them no more are taken: their peers see a reset.

use nonic::background;
use nonic_message::{Error, Sender};
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

/// How long the peer may take to look.
const LINGER: Duration = Duration::from_secs(10);
/// How many are waited for at a time.
const MOST: usize = 1024;

/// Says that nothing follows, and waits until the peer has everything and our own last frames have left.
pub(crate) fn poll_closed(sender: &mut Sender, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
    ready!(sender.poll_close(context))?;
    // The peer may wait to hear that its long messages were read. If the connection ends meanwhile, it needed that no more.
    let _ = ready!(sender.poll_flush(context));
    Poll::Ready(Ok(()))
}

/// Ends a stream, in the background if that takes time.
pub(crate) fn close(mut sender: Sender) {
    if poll_closed(&mut sender, &mut Context::from_waker(Waker::noop())).is_ready() {
        return;
    }
    let Some(place) = Place::take() else {
        return;
    };
    // Without a thread the stream ends as it is.
    let _ = background::spawn(async move {
        let until = Instant::now() + LINGER;
        let _ = background::before(until, poll_fn(|context| poll_closed(&mut sender, context))).await;
        drop(sender);
        drop(place);
    });
}

/// One of the places of streams that are waited for.
struct Place;

/// How many places are taken.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

impl Place {
    fn take() -> Option<Place> {
        let one_more = |taken: usize| (taken < MOST).then_some(taken + 1);
        let taken = TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        taken.is_ok().then_some(Place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        TAKEN.fetch_sub(1, Ordering::Relaxed);
    }
}
