//! Checks that there is memory for one more object.
//!
//! The standard library aborts the process if an allocation fails, but verbs promise an error. Creating an object makes
//! many small allocations in many places. So before the first of them, [`has_room`] checks that more than all of them
//! can be allocated, and tables that grow with the number of objects are grown by calls that can fail.

use std::sync::{Mutex, PoisonError};

/// More than the small allocations of creating any object take together.
pub const RESERVE: usize = 64 << 10;

/// A reserve, held while there is memory and released when there is none: a program that is refused an object, and the
/// code that tells it so, have that much.
static KEPT: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// Whether [`RESERVE`] and so many bytes more could be allocated in one piece.
pub fn has_room(bytes: usize) -> bool {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let mut probe: Vec<u8> = Vec::new();
    let has_room = probe.try_reserve_exact(bytes.saturating_add(RESERVE)).is_ok()
        && (kept.capacity() > 0 || kept.try_reserve_exact(RESERVE).is_ok());
    // Otherwise the compiler sees that the probe is unused, and does not allocate it.
    std::hint::black_box(&mut probe);
    if !has_room {
        *kept = Vec::new();
    }
    has_room
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_something_and_not_for_everything() {
        assert!(has_room(0));
        assert!(!has_room(usize::MAX));
        assert!(!has_room(isize::MAX as usize - 2 * RESERVE));
    }
}
