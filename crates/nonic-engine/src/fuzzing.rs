//! The fuzzers' access to the inside of this crate: memory that a hostile process shares with us, and what reads it.
//!
//! No other code should use it. The scripts that use it, and what must hold, are in the folder `fuzz`: `lane.rs` for the
//! rings, `direct.rs` for what is published. The tests below run the corpus of both.

pub use crate::direct::fuzzing::{PublishedVictim, Said, tables};
pub use crate::link::lane::fuzzing::{ReaderVictim, WriterVictim, layout};
pub use crate::os::hostile_memory::HostileMemory;

#[cfg(test)]
#[path = "../../../fuzz/src/corpus.rs"]
#[expect(unreachable_pub, reason = "shared by several crates")]
mod corpus;
#[cfg(test)]
#[path = "../../../fuzz/src/direct.rs"]
#[expect(unreachable_pub, reason = "shared with the fuzz crate")]
mod direct;
#[cfg(test)]
#[path = "../../../fuzz/src/lane.rs"]
#[expect(unreachable_pub, reason = "shared with the fuzz crate")]
mod lane;

#[cfg(test)]
mod tests {
    use super::corpus::replay;
    use super::{direct, lane};

    #[test]
    fn rings_of_hostile_processes() {
        replay("lane", lane::rings);
    }

    #[test]
    fn tables_of_hostile_processes() {
        replay("direct", direct::tables);
    }
}
