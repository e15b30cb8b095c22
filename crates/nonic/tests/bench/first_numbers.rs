//! What a capture says about the sequence numbers a connection began with.

use std::path::Path;
use std::process::Command;

/// The numbers asked for by REQ and by REP, and that of the first SEND.
///
/// Each message of the connection manager says with which number its *receiver* begins to send. Two sides that both
/// have it the wrong way round understand each other, but neither Linux nor hardware understands them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FirstNumbers {
    pub(crate) in_request: u32,
    pub(crate) in_response: u32,
    pub(crate) of_first_send: u32,
}

impl FirstNumbers {
    /// Asks tshark.
    pub(crate) fn read(capture: &Path) -> Self {
        let field = |filter: &str, field: &str| {
            let output = Command::new("tshark")
                .arg("-r")
                .arg(capture)
                .args(["-Y", filter, "-T", "fields", "-e", field])
                .output()
                .expect("tshark runs");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let word = text.lines().next().map(str::to_owned);
            let word = word.unwrap_or_else(|| panic!("no packet with {filter}"));
            let number = match word.strip_prefix("0x") {
                Some(digits) => u32::from_str_radix(digits, 16),
                None => word.parse(),
            };
            number.expect("a number")
        };
        Self {
            in_request: field("infiniband.cm.req.startpsn", "infiniband.cm.req.startpsn"),
            in_response: field("infiniband.cm.rep.startpsn", "infiniband.cm.rep.startpsn"),
            of_first_send: field("infiniband.bth.opcode == 4", "infiniband.bth.psn"),
        }
    }
}
