//! Whether there is memory for one more object.
//!
//! The standard library ends the process where an allocation fails, and verbs promise an error. Creating an object makes many
//! small allocations in many places; so before the first of them it is asked whether more than all of them can be had
//! ([`has_room`]), and tables that grow with the number of objects are grown by calls that can fail.

/// More than the small allocations of creating any object take together, and what is left to a program that was refused one.
pub const RESERVE: usize = 64 << 10;

/// Whether [`RESERVE`] and so many bytes more could be allocated in one piece.
pub fn has_room(bytes: usize) -> bool {
    let mut probe: Vec<u8> = Vec::new();
    let allocated = probe.try_reserve_exact(bytes.saturating_add(RESERVE)).is_ok();
    // Or the compiler sees that nobody uses it, and does not try.
    std::hint::black_box(&mut probe);
    allocated
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
