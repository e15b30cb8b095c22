//! What every test of the API needs first: loopback's device, a domain and a queue.

#![allow(dead_code, reason = "every test file uses a part of it")]

use nonic::{CompletionQueue, Device, Domain};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// How long anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A device and what hangs on it.
pub(crate) struct Bench {
    pub(crate) device: Device,
    pub(crate) domain: Domain,
    pub(crate) queue: CompletionQueue,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let device = Device::open("roce_lo").expect("loopback is there");
        let (domain, queue) = (device.domain(), device.completion_queue(256).expect("a queue"));
        Bench {
            device,
            domain,
            queue,
        }
    }
}

/// The smallest runtime there is.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => return result,
            Poll::Pending => std::thread::park_timeout(PATIENCE),
        }
    }
}
