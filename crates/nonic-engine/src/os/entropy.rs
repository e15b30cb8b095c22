//! Unguessable numbers from the kernel.

use nonic_core::Entropy;
use rustix::rand::{GetRandomFlags, getrandom};

/// Draws from the kernel's generator, a few hundred bytes at a time.
pub(crate) struct KernelEntropy {
    bytes: [u8; 256],
    used: usize,
}

impl KernelEntropy {
    pub(crate) fn new() -> Self {
        KernelEntropy {
            bytes: [0; 256],
            used: 256,
        }
    }

    fn refill(&mut self) {
        let mut filled = 0;
        while filled < self.bytes.len() {
            // Fails only on kernels without the call (before 3.17) or when interrupted; a NIC without
            // unguessable keys must not run.
            match getrandom(&mut self.bytes[filled..], GetRandomFlags::empty()) {
                Ok(count) => filled += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => panic!("the kernel gives no random numbers: {error}"),
            }
        }
        self.used = 0;
    }
}

impl Entropy for KernelEntropy {
    fn next_u32(&mut self) -> u32 {
        if self.used + 4 > self.bytes.len() {
            self.refill();
        }
        let word = &mut self.bytes[self.used..self.used + 4];
        let value = u32::from_ne_bytes(word.try_into().expect("the range is 4 bytes long"));
        // What was given out is not kept.
        word.fill(0);
        self.used += 4;
        value
    }
}
