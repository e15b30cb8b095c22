//! Checks that atomics happened one after the other, each exactly once.
//!
//! Every atomic adds or swaps in a random number, so a word never has the same value twice. The values
//! returned must then chain up: from the first value to the last one, each link an atomic that succeeded,
//! or one whose fate is unknown because its queue pair failed. Those fail in order, so of a queue pair's
//! unknown ones only the first few can have happened.

use super::Check;
use super::content::{Arena, Pieces};
use super::model::{Atomic, Model, Word};
use super::request::Change;
use std::collections::BTreeMap;

/// How many partial chains are tried before giving a word the benefit of the doubt.
const MAX_TRIES: u32 = 20_000;

impl Model {
    /// Before the run: words hold what their arenas begin with, and have no history.
    pub(crate) fn predict_words(&mut self) {
        for word in &mut self.words {
            // A plan uses the history to claim words; it is written anew as atomics are posted.
            word.history.clear();
            let initial = self.arenas[word.arena].initial(word.offset, 8).bytes();
            word.predicted = initial.try_into().map_or(0, u64::from_ne_bytes);
        }
    }

    /// Checks every word and notes its final value in the image.
    pub(crate) fn settle_words(&mut self) -> Check {
        for number in 0..self.words.len() {
            let word = &self.words[number];
            if self.arenas[word.arena].region.is_none() {
                continue;
            }
            word.settle(&mut self.arenas[word.arena])
                .or_else(|what| self.excuse(word.arena, format!("word {number}: {what}")))?;
        }
        Ok(())
    }
}

impl Word {
    /// Checks that its history leads to what is there now, and notes that in the image.
    fn settle(&self, arena: &mut Arena) -> Check {
        let place = Pieces::one(self.offset, 8);
        let now = arena.read(&place);
        let first = word_at(&place.gather(&arena.image))?;
        place.scatter(&mut arena.image, &now);
        check_chain(&self.history, first, word_at(&now)?)
    }
}

fn word_at(bytes: &[u8]) -> Result<u64, String> {
    let bytes = bytes.try_into().map_err(|_| "a word has 8 bytes")?;
    Ok(u64::from_ne_bytes(bytes))
}

/// Whether `history` leads from `first` to `last`.
fn check_chain(history: &[Atomic], first: u64, last: u64) -> Check {
    let mut chain = Chain {
        links: BTreeMap::new(),
        unknown: BTreeMap::new(),
        last,
        tries: 0,
        path: Vec::new(),
        progress: BTreeMap::new(),
    };
    let mut looks = Vec::new();
    for atomic in history {
        match atomic.original {
            None => chain.unknown.entry(atomic.qp).or_default().push(atomic.change),
            Some(original) => {
                let next = atomic.change.apply(original);
                if next == original {
                    looks.push(original);
                } else if chain.links.insert(original, next).is_some() {
                    return Err(format!(
                        "two atomics of {} found the value {original:#x}",
                        history.len()
                    ));
                }
            }
        }
    }
    if !chain.leads_on(first, 0) {
        return Err(format!(
            "{} atomics do not lead from {first:#x} to {last:#x} one by one",
            history.len()
        ));
    }
    // With several of unknown fate their order is unknown too, and so are the values between them.
    let certain = chain.unknown.values().map(Vec::len).sum::<usize>() < 2;
    if certain && chain.tries < MAX_TRIES && looks.iter().any(|look| !chain.path.contains(look)) {
        return Err("a compare-and-swap returned a value the word never had".into());
    }
    Ok(())
}

struct Chain {
    /// From a value to the next one, by atomics that succeeded.
    links: BTreeMap<u64, u64>,
    /// By queue pair, those that may have happened.
    unknown: BTreeMap<usize, Vec<Change>>,
    last: u64,
    tries: u32,
    /// The values the word had, as far as the search has come.
    path: Vec<u64>,
    /// By queue pair, how many of its unknown ones are behind us, and how long the path was then.
    progress: BTreeMap<usize, (usize, usize)>,
}

impl Chain {
    /// Whether `value` leads to the last one by way of all links, `used` of which are behind us.
    fn leads_on(&mut self, value: u64, used: usize) -> bool {
        self.tries += 1;
        if self.tries > MAX_TRIES {
            return true;
        }
        self.path.push(value);
        let leads = match self.links.get(&value).copied() {
            Some(next) => used < self.links.len() && self.leads_on(next, used + 1),
            None if used == self.links.len() && value == self.last => true,
            None => self.leads_on_by_unknown(value, used),
        };
        if !leads {
            self.path.pop();
        }
        leads
    }

    /// Tries every atomic of unknown fate that may have been the next to change the word.
    fn leads_on_by_unknown(&mut self, value: u64, used: usize) -> bool {
        let queues: Vec<usize> = self.unknown.keys().copied().collect();
        for queue in queues {
            let before = self.progress.get(&queue).copied();
            let (at, since) = before.unwrap_or((0, 0));
            for skipped in at..self.unknown[&queue].len() {
                let change = self.unknown[&queue][skipped];
                let next = change.apply(value);
                if next != value {
                    self.progress.insert(queue, (skipped + 1, self.path.len()));
                    if self.leads_on(next, used) {
                        return true;
                    }
                    match before {
                        Some(before) => self.progress.insert(queue, before),
                        None => self.progress.remove(&queue),
                    };
                }
                // It may have come earlier and changed nothing: a swap that met another value.
                if !self.path[since..].iter().any(|met| change.apply(*met) == *met) {
                    break;
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(qp: usize, amount: u64, original: Option<u64>) -> Atomic {
        Atomic {
            qp,
            change: Change::Add(amount),
            original,
        }
    }

    #[test]
    fn a_chain_in_any_order_of_completion_is_accepted() {
        let history = [add(0, 5, Some(10)), add(1, 7, Some(15)), add(0, 1, Some(22))];
        assert_eq!(check_chain(&history, 10, 23), Ok(()));
    }

    #[test]
    fn an_atomic_executed_twice_is_found() {
        let history = [add(0, 5, Some(10)), add(1, 7, Some(20))];
        assert!(check_chain(&history, 10, 27).is_err());
        assert!(check_chain(&[add(0, 5, Some(10))], 10, 20).is_err());
    }

    #[test]
    fn one_of_unknown_fate_may_have_happened_or_not() {
        let history = [add(0, 5, Some(10)), add(1, 7, None), add(0, 3, Some(22))];
        assert_eq!(check_chain(&history, 10, 25), Ok(()));
        assert_eq!(check_chain(&history[..2], 10, 15), Ok(()));
        assert!(check_chain(&history[..2], 10, 30).is_err());
    }

    #[test]
    fn a_swap_that_did_not_match_must_have_seen_a_real_value() {
        let swap = |original| Atomic {
            qp: 0,
            change: Change::Swap { compare: 1, swap: 2 },
            original: Some(original),
        };
        assert_eq!(check_chain(&[add(1, 5, Some(10)), swap(15)], 10, 15), Ok(()));
        assert!(check_chain(&[add(1, 5, Some(10)), swap(99)], 10, 15).is_err());
    }

    #[test]
    fn a_swap_of_unknown_fate_may_have_met_an_earlier_value() {
        let unknown = |change| Atomic {
            qp: 1,
            change,
            original: None,
        };
        // The swap ran while the word was 10 and did nothing; then it became 15; then the addition ran.
        let history = [
            unknown(Change::Swap { compare: 15, swap: 1 }),
            add(0, 5, Some(10)),
            unknown(Change::Add(100)),
        ];
        assert_eq!(check_chain(&history, 10, 115), Ok(()));
        // Without that earlier value it must have matched.
        assert!(check_chain(&[history[0], history[2]], 15, 115).is_err());
    }
}
