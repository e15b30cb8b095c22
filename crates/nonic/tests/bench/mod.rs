//! What every test of the API needs first: loopback's device, a domain and a queue.

use nonic::{CompletionQueue, Device, Domain};

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
