//! Options of an identifier, names of events, and extended capabilities (of which there are none).

use crate::id::{Id, id};
use crate::refusal::ANSWER;
use libc::{c_char, c_int, c_void, size_t};
use nonic_abi::errno::{Errno, refused};
use nonic_abi::rdma_cma::*;
use nonic_abi::verbs::ibv_ece;

const NAMES: [&std::ffi::CStr; 16] = [
    c"RDMA_CM_EVENT_ADDR_RESOLVED",
    c"RDMA_CM_EVENT_ADDR_ERROR",
    c"RDMA_CM_EVENT_ROUTE_RESOLVED",
    c"RDMA_CM_EVENT_ROUTE_ERROR",
    c"RDMA_CM_EVENT_CONNECT_REQUEST",
    c"RDMA_CM_EVENT_CONNECT_RESPONSE",
    c"RDMA_CM_EVENT_CONNECT_ERROR",
    c"RDMA_CM_EVENT_UNREACHABLE",
    c"RDMA_CM_EVENT_REJECTED",
    c"RDMA_CM_EVENT_ESTABLISHED",
    c"RDMA_CM_EVENT_DISCONNECTED",
    c"RDMA_CM_EVENT_DEVICE_REMOVAL",
    c"RDMA_CM_EVENT_MULTICAST_JOIN",
    c"RDMA_CM_EVENT_MULTICAST_ERROR",
    c"RDMA_CM_EVENT_ADDR_CHANGE",
    c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
];

/// The longest acknowledgement timeout there is.
const MAX_ACK_TIMEOUT: u8 = 31;

fn set(id: &Id, level: c_int, option: c_int, value: &[u8]) -> Result<(), Errno> {
    if level == RDMA_OPTION_IB {
        // Paths are InfiniBand's; on Ethernet there is one, and it is known.
        return Err(refused(
            libc::ENOSYS,
            "options of RDMA_OPTION_IB are paths of InfiniBand",
            "do without: on Ethernet there is one path, and it is known",
        ));
    }
    let byte = || match value {
        [byte] => Ok(*byte),
        _ => Err(refused(
            libc::EINVAL,
            format!("optlen is {}", value.len()),
            "this option is one byte",
        )),
    };
    let flag = || -> Result<bool, Errno> {
        let value: [u8; 4] = value.try_into().map_err(|_| {
            refused(
                libc::EINVAL,
                format!("optlen is {}", value.len()),
                "this option is an int",
            )
        })?;
        Ok(c_int::from_ne_bytes(value) != 0)
    };
    let mut state = id.state();
    match (level, option) {
        (RDMA_OPTION_ID, RDMA_OPTION_ID_TOS) => state.traffic_class = byte()?,
        (RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR) => state.reuses_port = flag()?,
        (RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY) => state.own_family_only = flag()?,
        (RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT) => {
            let timeout = byte()?;
            if timeout == 0 || timeout > MAX_ACK_TIMEOUT {
                return Err(refused(
                    libc::EINVAL,
                    format!("the acknowledgement timeout is {timeout}: it is an exponent"),
                    "set it from 1 to 31",
                ));
            }
            state.ack_timeout = Some(timeout);
        }
        _ => {
            return Err(refused(
                libc::ENOSYS,
                format!("the option {option} of level {level} is unknown"),
                "use RDMA_OPTION_ID_TOS, REUSEADDR, AFONLY or ACK_TIMEOUT",
            ));
        }
    }
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_set_option(
    pointer: *mut rdma_cm_id,
    level: c_int,
    option: c_int,
    value: *mut c_void,
    len: size_t,
) -> c_int {
    if value.is_null() {
        return ANSWER.minus_one(
            "rdma_set_option",
            Err(refused(libc::EINVAL, "optval is NULL", "pass a value")),
        );
    }
    // SAFETY: the program passes its identifier and a value of that length.
    ANSWER.minus_one("rdma_set_option", unsafe {
        id(pointer).and_then(|id| set(&id, level, option, std::slice::from_raw_parts(value.cast(), len)))
    })
}

#[unsafe(no_mangle)]
extern "C" fn rdma_event_str(event: c_int) -> *const c_char {
    let name = usize::try_from(event).ok().and_then(|event| NAMES.get(event));
    name.map_or(c"UNKNOWN EVENT".as_ptr(), |name| name.as_ptr())
}

#[unsafe(no_mangle)]
extern "C" fn rdma_set_local_ece(_id: *mut rdma_cm_id, _ece: *mut ibv_ece) -> c_int {
    ANSWER.minus_one(
        "rdma_set_local_ece",
        Err(refused(
            libc::EOPNOTSUPP,
            "options of vendors (ECE) are not offered",
            "do without them",
        )),
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_get_remote_ece(_id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
    // SAFETY: the program passes where to put the answer.
    match unsafe { ece.as_mut() } {
        Some(ece) => {
            *ece = ibv_ece {
                vendor_id: 0,
                options: 0,
                comp_mask: 0,
            };
            0
        }
        None => ANSWER.minus_one(
            "rdma_get_remote_ece",
            Err(refused(
                libc::EINVAL,
                "ece is NULL",
                "pass where to put the options",
            )),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nonic_explain::topics::{self, Kind};

    /// What `rdma_event_str` answers is what people ask `nonic explain` with.
    #[test]
    fn every_event_has_the_name_that_it_is_explained_by() {
        let explained: Vec<&str> = topics::all()
            .filter(|topic| topic.kind == Kind::CmEvent)
            .map(|topic| topic.name)
            .collect();
        let told: Vec<&str> = NAMES.iter().map(|name| name.to_str().expect("ASCII")).collect();
        assert_eq!(told, explained);
        assert_eq!(topics::find("UNKNOWN EVENT").len(), 1);
    }
}
