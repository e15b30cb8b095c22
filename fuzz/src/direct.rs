//! The tables by which a hostile process publishes its keys and queue pairs.
//!
//! The input is read as a script of words that it writes, and of questions that are asked. Whatever it says:
//! - nothing panics, and nothing is read outside of the tables;
//! - an entry is found only where it may be, and only if it names what was looked for;
//! - an address is given only for accesses that the entry covers from one end to the other.

use arbitrary::{Arbitrary, Unstructured};
use nonic_core::Access;
use nonic_engine::fuzzing::{HostileMemory, PublishedVictim, tables};

const LIVE: u64 = 1 << 32;
/// How many entries are looked at for a number.
const PROBED: usize = 8;
const STEPS: usize = 400;

#[derive(Arbitrary, Debug)]
enum Step {
    /// Any word, anywhere.
    Poke {
        at: u32,
        word: u64,
    },
    /// An entry of a number, as it should be or almost.
    Entry {
        key: bool,
        number: Number,
        shift: u8,
        words: [Word; 7],
    },
    FindQp(Number),
    FindKey {
        key: Number,
        pd: u8,
        needed: u8,
        va: Word,
        length: u32,
    },
}

/// Few, so that they meet.
#[derive(Arbitrary, Copy, Clone, Debug)]
enum Number {
    Few(u8),
    Any(u32),
}

impl Number {
    fn value(self) -> u32 {
        match self {
            Number::Few(number) => u32::from(number) << 12 | 5,
            Number::Any(number) => number & 0x00ff_ffff,
        }
    }
}

#[derive(Arbitrary, Copy, Clone, Debug)]
enum Word {
    Few(u8),
    Any(u64),
    Last(u8),
}

impl Word {
    fn value(self) -> u64 {
        match self {
            Word::Few(word) => u64::from(word) << 32 | u64::from(word),
            Word::Any(word) => word,
            Word::Last(word) => u64::MAX - u64::from(word),
        }
    }
}

/// Runs the script in `bytes`.
pub fn tables(bytes: &[u8]) {
    let mut script = Unstructured::new(bytes);
    let mut attack = Attack::new();
    for _ in 0..STEPS {
        if script.is_empty() {
            break;
        }
        let Ok(step) = script.arbitrary::<Step>() else {
            break;
        };
        attack.step(step);
    }
}

/// The tables that a hostile process writes, and their reader.
struct Attack {
    victim: PublishedVictim,
    published: HostileMemory,
}

impl Attack {
    fn new() -> Self {
        let (victim, published) = PublishedVictim::new();
        Attack { victim, published }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Poke { at, word } => self.published.poke(at as usize, word),
            Step::Entry {
                key,
                number,
                shift,
                words,
            } => {
                let number = number.value();
                let at = offset(key, (number as usize).wrapping_add(shift.into()));
                self.published.poke(at, LIVE | u64::from(number));
                for (index, word) in words.into_iter().enumerate() {
                    self.published.poke(at + 8 * (index + 1), word.value());
                }
            }
            Step::FindQp(qpn) => find_qp(&self.victim, &self.published, qpn.value()),
            Step::FindKey {
                key,
                pd,
                needed,
                va,
                length,
            } => find_key(
                &self.victim,
                &self.published,
                key.value(),
                (pd.into(), remote_access(needed)),
                (va.value(), length),
            ),
        }
    }
}

fn remote_access(number: u8) -> Access {
    match number % 3 {
        0 => Access::REMOTE_WRITE,
        1 => Access::REMOTE_READ,
        _ => Access::REMOTE_READ | Access::REMOTE_WRITE,
    }
}

fn offset(key: bool, index: usize) -> usize {
    match key {
        true => tables::KEYS + index % tables::KEY_COUNT * tables::ENTRY,
        false => tables::QPS + index % tables::QP_COUNT * tables::ENTRY,
    }
}

fn is_near(index: usize, number: u32, count: usize) -> bool {
    (0..PROBED).any(|probe| (number as usize).wrapping_add(probe) % count == index)
}

fn find_qp(victim: &PublishedVictim, published: &HostileMemory, qpn: u32) {
    let Some((index, said)) = victim.find_qp(qpn) else {
        return;
    };
    assert!(is_near(index, qpn, tables::QP_COUNT));
    let at = offset(false, index);
    assert_eq!(published.peek(at), LIVE | u64::from(qpn));
    assert_eq!(u64::from(said.pd), published.peek(at + 16) >> 32);
    assert!(said.first.value() < 1 << 24);
}

fn find_key(
    victim: &PublishedVictim,
    published: &HostileMemory,
    key: u32,
    (pd, needed): (u32, Access),
    (va, length): (u64, u32),
) {
    let Some(index) = victim.find_key(key) else {
        return;
    };
    assert!(is_near(index, key, tables::KEY_COUNT));
    let at = offset(true, index);
    assert_eq!(published.peek(at), LIVE | u64::from(key));
    let Some(address) = victim.check(index, pd, needed, va, length) else {
        return;
    };
    let [rights, iova, whole, start] = [1, 2, 3, 4].map(|word| u128::from(published.peek(at + 8 * word)));
    let [va, length, address] = [u128::from(va), u128::from(length), u128::from(address)];
    assert_eq!((rights >> 32) as u32, pd);
    assert_eq!(rights as u32 & needed.bits(), needed.bits());
    assert!(va >= iova && va + length <= iova + whole, "outside of the key");
    assert_eq!(address, start + (va - iova));
}
