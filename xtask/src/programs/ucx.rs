//! UCX: what `ucx_info` finds, and every test of `ucx_perftest` over both transports of verbs.

use super::case::{Case, Place, Program, Shape};
use crate::tools::case::{Connected, Reached};

const UCX: Program = Program {
    name: "UCX",
    version: "1.13.1",
    packages: &[("/usr/bin/ucx_perftest", "ucx-utils")],
    wheels: &[],
};

/// Everything.
pub(super) fn all() -> Vec<Case> {
    let mut cases = vec![info()];
    cases.push(perftest("-t tag_bw -n 2000 -s 65536", 2000 * 65536).core(&[Place::TwoHosts]));
    cases
}

fn info() -> Case {
    Case {
        program: &UCX,
        line: "ucx_info -d".to_owned(),
        shape: Shape::Alone {
            line: "ucx_info -d".to_owned(),
            prints: &["Transport: rc_verbs", "Transport: ud_verbs"],
        },
        places: vec![Place::OneHost],
        moved_bytes: 0,
        core: vec![Place::OneHost],
        known_failure: None,
    }
}

/// A test whose processes find each other by TCP, and choose the transport themselves.
fn perftest(options: &str, moved_bytes: u64) -> Case {
    Case {
        program: &UCX,
        line: format!("ucx_perftest {options}"),
        shape: Shape::Pair(Connected {
            server: "ucx_perftest -p {port}".to_owned(),
            client: format!("ucx_perftest {{to}} -p {{port}} {options}"),
            reached: Reached::Tcp,
            clients: 1,
            server_ends: true,
            prints: "Final:",
            copied_bytes: None,
        }),
        places: vec![Place::TwoHosts],
        moved_bytes,
        core: Vec::new(),
        known_failure: None,
    }
}
