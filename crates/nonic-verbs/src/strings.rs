//! Names of enumerated values, of which `nonic explain` knows every one, and the table of link rates.

use libc::{c_char, c_int};
use nonic_explain::topics::texts::{EVENTS, NODE_TYPES, PORT_STATES, STATUSES};
use std::ffi::CStr;

/// By the numbers of `enum ibv_wr_opcode`, which has gaps.
const OPCODES: [&CStr; 16] = [
    c"rdma-write",
    c"rdma-write-with-imm",
    c"send",
    c"send-with-imm",
    c"rdma-read",
    c"atomic-cmp-and-swp",
    c"atomic-fetch-and-add",
    c"local-inv",
    c"bind-mw",
    c"send-with-inv",
    c"tso",
    c"driver1",
    c"unknown",
    c"unknown",
    c"flush",
    c"atomic-write",
];

fn name(table: &[&'static CStr], value: c_int) -> *const c_char {
    let index = usize::try_from(value).ok();
    let name = index.and_then(|index| table.get(index)).unwrap_or(&c"unknown");
    name.as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn ibv_wc_status_str(status: c_int) -> *const c_char {
    name(&STATUSES, status)
}

#[unsafe(no_mangle)]
extern "C" fn ibv_node_type_str(node_type: c_int) -> *const c_char {
    name(&NODE_TYPES, node_type)
}

#[unsafe(no_mangle)]
extern "C" fn ibv_port_state_str(state: c_int) -> *const c_char {
    name(&PORT_STATES, state)
}

#[unsafe(no_mangle)]
extern "C" fn ibv_event_type_str(event: c_int) -> *const c_char {
    name(&EVENTS, event)
}

/// The name of a work request's opcode. It is no API of rdma-core's, but its provider libraries import it.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ibv_wr_opcode_str(opcode: c_int) -> *const c_char {
    name(&OPCODES, opcode)
}

/// A rate's code, its multiple of 2.5 Gb/s (−1 where it is none) and its speed.
struct Rate {
    code: c_int,
    multiple: c_int,
    mbps: c_int,
}

const fn rate(code: c_int, multiple: c_int, mbps: c_int) -> Rate {
    Rate { code, multiple, mbps }
}

const RATES: [Rate; 23] = [
    rate(2, 1, 2500),
    rate(3, 4, 10_000),
    rate(4, 12, 30_000),
    rate(5, 2, 5000),
    rate(6, 8, 20_000),
    rate(7, 16, 40_000),
    rate(8, 24, 60_000),
    rate(9, 32, 80_000),
    rate(10, 48, 120_000),
    rate(11, -1, 14_062),
    rate(12, -1, 56_250),
    rate(13, -1, 112_500),
    rate(14, -1, 168_750),
    rate(15, -1, 25_781),
    rate(16, -1, 103_125),
    rate(17, -1, 206_250),
    rate(18, -1, 309_375),
    rate(19, 11, 28_125),
    rate(20, 20, 53_125),
    rate(21, 160, 425_000),
    rate(22, 240, 637_500),
    rate(23, 320, 850_000),
    rate(24, 480, 1_275_000),
];

fn find_rate(matches: impl Fn(&Rate) -> bool) -> Option<&'static Rate> {
    RATES.iter().find(|rate| matches(rate))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_rate_to_mult(code: c_int) -> c_int {
    find_rate(|rate| rate.code == code).map_or(-1, |rate| rate.multiple)
}

#[unsafe(no_mangle)]
extern "C" fn mult_to_ibv_rate(multiple: c_int) -> c_int {
    find_rate(|rate| multiple > 0 && rate.multiple == multiple).map_or(0, |rate| rate.code)
}

#[unsafe(no_mangle)]
extern "C" fn ibv_rate_to_mbps(code: c_int) -> c_int {
    find_rate(|rate| rate.code == code).map_or(-1, |rate| rate.mbps)
}

#[unsafe(no_mangle)]
extern "C" fn mbps_to_ibv_rate(mbps: c_int) -> c_int {
    find_rate(|rate| rate.mbps == mbps).map_or(0, |rate| rate.code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: *const c_char) -> &'static str {
        // SAFETY: the names are literals.
        unsafe { CStr::from_ptr(name) }.to_str().expect("ASCII")
    }

    #[test]
    fn values_outside_the_tables_are_unknown() {
        for value in [-1, 1000, c_int::MIN, c_int::MAX] {
            assert_eq!(text(ibv_wc_status_str(value)), "unknown");
            assert_eq!(text(ibv_node_type_str(value)), "unknown");
            assert_eq!(text(ibv_port_state_str(value)), "unknown");
            assert_eq!(text(ibv_event_type_str(value)), "unknown");
            assert_eq!(text(ibv_wr_opcode_str(value)), "unknown");
            assert_eq!(ibv_rate_to_mult(value), -1);
            assert_eq!(ibv_rate_to_mbps(value), -1);
            assert_eq!(mult_to_ibv_rate(value), 0);
            assert_eq!(mbps_to_ibv_rate(value), 0);
        }
    }

    #[test]
    fn statuses_have_the_names_of_their_numbers() {
        use nonic_core::Status;
        let expected = [
            (Status::Success, "success"),
            (Status::LocalProtection, "local protection error"),
            (Status::Flushed, "Work Request Flushed Error"),
            (Status::WindowBind, "memory management operation error"),
            (Status::RemoteAccess, "remote access error"),
            (Status::RnrRetryExceeded, "RNR retry counter exceeded"),
        ];
        for (status, name) in expected {
            assert_eq!(text(ibv_wc_status_str(status as c_int)), name);
        }
    }

    #[test]
    fn opcodes_have_the_names_of_their_numbers() {
        use nonic_abi::verbs::{IBV_WR_ATOMIC_WRITE, IBV_WR_FLUSH, IBV_WR_SEND_WITH_IMM};
        let expected = [
            (0, "rdma-write"),
            (IBV_WR_SEND_WITH_IMM, "send-with-imm"),
            (11, "driver1"),
            (IBV_WR_FLUSH, "flush"),
            (IBV_WR_ATOMIC_WRITE, "atomic-write"),
        ];
        for (opcode, name) in expected {
            assert_eq!(text(ibv_wr_opcode_str(opcode)), name);
        }
        // No opcode has these numbers, and none has one above.
        for gap in [12, 13, 16] {
            assert_eq!(text(ibv_wr_opcode_str(gap)), "unknown");
        }
    }

    #[test]
    fn every_rate_is_found_by_its_speed_and_its_multiple() {
        for rate in &RATES {
            assert_eq!(mbps_to_ibv_rate(ibv_rate_to_mbps(rate.code)), rate.code);
            if rate.multiple > 0 {
                assert_eq!(mult_to_ibv_rate(ibv_rate_to_mult(rate.code)), rate.code);
            }
        }
    }
}
