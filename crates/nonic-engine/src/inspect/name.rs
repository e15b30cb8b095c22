//! The names under which processes can be asked: `nonic/3/inspect/<process>/<random>`, abstract as those of [`crate::host`].
//!
//! The random part tells apart processes that have one number in two PID namespaces, and one that closed its last device
//! from the same a moment later.

use std::fmt;

const PREFIX: &str = "nonic/3/inspect/";

/// The name of a process that can be asked.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct ProcessName {
    /// As it calls itself.
    pub(super) pid: u32,
    pub(super) nonce: u64,
}

impl ProcessName {
    /// Reads a name as the kernel shows it, without the sign for abstract ones.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let (pid, nonce) = name.strip_prefix(PREFIX)?.split_once('/')?;
        let exact = pid.bytes().all(|digit| digit.is_ascii_digit()) && nonce.len() == 16;
        Some(ProcessName {
            pid: pid.parse().ok().filter(|_| exact)?,
            nonce: u64::from_str_radix(nonce, 16).ok()?,
        })
    }
}

impl fmt::Display for ProcessName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}/{:016x}", self.pid, self.nonce)
    }
}

/// The names in the kernel's table of Unix sockets (`/proc/net/unix`), each once.
pub(super) fn names_in(table: &str) -> Vec<ProcessName> {
    // The name is the last column, and may contain anything.
    let names = table
        .lines()
        .filter_map(|line| line.split_once(" @"))
        .map(|(_, name)| name);
    let mut names: Vec<ProcessName> = names.filter_map(ProcessName::parse).collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_found_among_others_once() {
        let name = ProcessName {
            pid: 4242,
            nonce: 0xabc,
        };
        assert_eq!(name.to_string(), "nonic/3/inspect/4242/0000000000000abc");
        let table = format!(
            "Num       RefCount Protocol Flags    Type St Inode Path\n\
             0000: 00000002 00000000 00010000 0001 01 1 @{name}\n\
             0000: 00000003 00000000 00000000 0001 03 2 @{name}\n\
             0000: 00000002 00000000 00010000 0001 01 3 /run/nonic/3/inspect/1/0000000000000001\n\
             0000: 00000002 00000000 00010000 0005 01 4 @nonic/3/127.0.0.1/block/001\n\
             0000: 00000002 00000000 00010000 0001 01 5 @nonic/3/inspect/+1/0000000000000001\n\
             0000: 00000003 00000000 00000000 0001 03 6\n"
        );
        assert_eq!(names_in(&table), [name]);
    }

    proptest! {
        #[test]
        fn any_name_is_read_or_not(name in "(nonic/3/inspect/)?[0-9a-f/+]{0,24}") {
            if let Some(parsed) = ProcessName::parse(&name) {
                prop_assert_eq!(ProcessName::parse(&parsed.to_string()), Some(parsed));
            }
        }
    }
}
