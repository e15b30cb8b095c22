//! A pool of buffers for frames on their way. Memory is taken from the system when there are more than ever before, and
//! given back at the end.

use super::frame::Frame;

/// All frames together are not larger than this; what comes then is dropped.
const MOST_BYTES: usize = 1 << 30;

/// Sizes of buffers: a packet, a large one, and as much as the kernel leaves in one piece.
const SIZES: [usize; 3] = [2 << 10, 10 << 10, 68 << 10];

#[derive(Debug)]
pub(super) struct Pool {
    slots: Vec<Slot>,
    /// Slots without a frame, by size.
    free: [Vec<u32>; SIZES.len()],
    bytes: usize,
}

/// A buffer, with a frame or without.
#[derive(Debug)]
struct Slot {
    buffer: Box<[u8]>,
    length: usize,
    class: usize,
    /// Parts of it that are still on their way.
    references: u32,
    frame: Option<Frame>,
}

impl Pool {
    pub(super) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Default::default(),
            bytes: 0,
        }
    }

    /// Keeps a frame until it was released so often; nothing if there is no room.
    pub(super) fn keep(&mut self, bytes: &[u8], frame: Frame, references: u32) -> Option<u32> {
        let class = SIZES.iter().position(|size| bytes.len() <= *size)?;
        let index = match self.free[class].pop() {
            Some(index) => index,
            None => self.grow(class)?,
        };
        let slot = &mut self.slots[index as usize];
        slot.buffer[..bytes.len()].copy_from_slice(bytes);
        slot.length = bytes.len();
        slot.references = references;
        slot.frame = Some(frame);
        Some(index)
    }

    fn grow(&mut self, class: usize) -> Option<u32> {
        let size = SIZES[class];
        if self.bytes + size > MOST_BYTES {
            return None;
        }
        self.bytes += size;
        self.slots.push(Slot {
            buffer: vec![0; size].into_boxed_slice(),
            length: 0,
            class,
            references: 0,
            frame: None,
        });
        Some(self.slots.len() as u32 - 1)
    }

    /// A frame that was kept.
    pub(super) fn frame(&self, index: u32) -> Option<(&[u8], Frame)> {
        let slot = &self.slots[index as usize];
        Some((&slot.buffer[..slot.length], slot.frame?))
    }

    /// One part less is on its way.
    pub(super) fn release(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        slot.references -= 1;
        if slot.references == 0 {
            slot.frame = None;
            self.free[slot.class].push(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_used_again_once_all_parts_were_released() {
        let mut bytes = vec![0; 10];
        bytes.extend([0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        let frame = Frame::parse(&bytes).expect("it is a frame");
        let mut pool = Pool::new();
        let first = pool.keep(&bytes, frame, 2).expect("there is room");
        pool.release(first);
        assert_eq!(pool.frame(first), Some((&bytes[..], frame)));
        let second = pool.keep(&bytes, frame, 1).expect("there is room");
        assert_ne!(first, second);
        pool.release(first);
        assert_eq!(pool.frame(first), None);
        assert_eq!(pool.keep(&bytes, frame, 1), Some(first));
    }

    #[test]
    fn there_is_a_limit() {
        let mut pool = Pool {
            bytes: MOST_BYTES - 2048,
            ..Pool::new()
        };
        let frame = Frame::parse(&[&[0; 10][..], &[0x45; 20]].concat()).expect("it is a frame");
        assert!(pool.keep(&[0; 100], frame, 1).is_some());
        assert!(pool.keep(&[0; 100], frame, 1).is_none());
    }
}
