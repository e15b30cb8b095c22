//! `rdma_getaddrinfo`: names to addresses, with what RDMA adds to them.

use crate::refusal::ANSWER;
use libc::{addrinfo, c_char, c_int, sockaddr, socklen_t};
use nonic_abi::errno::refused;
use nonic_abi::rdma_cma::*;
use nonic_abi::verbs::{IBV_QPT_RC, IBV_QPT_UD};

/// A copy of an address that `rdma_freeaddrinfo` frees.
///
/// # Safety
///
/// The address is that long.
unsafe fn copy(address: *const sockaddr, len: socklen_t) -> *mut sockaddr {
    if address.is_null() || len == 0 {
        return std::ptr::null_mut();
    }
    // SAFETY: the caller's promise, and memory of that size.
    unsafe {
        let place = libc::malloc(len as usize);
        if !place.is_null() {
            std::ptr::copy_nonoverlapping(address.cast::<u8>(), place.cast(), len as usize);
        }
        place.cast()
    }
}

/// Port space and queue pair, each from the other if only one is given.
fn kinds(hints: Option<&rdma_addrinfo>) -> (c_int, c_int) {
    let (qp_type, port_space) = hints.map_or((0, 0), |hints| (hints.ai_qp_type, hints.ai_port_space));
    let port_space = match (port_space, qp_type) {
        (0, IBV_QPT_UD) => RDMA_PS_UDP,
        (0, _) => RDMA_PS_TCP,
        (given, _) => given,
    };
    let qp_type = match (qp_type, port_space) {
        (0, RDMA_PS_UDP | RDMA_PS_IPOIB) => IBV_QPT_UD,
        (0, _) => IBV_QPT_RC,
        (given, _) => given,
    };
    (port_space, qp_type)
}

/// Room for an entry, all zeros; NULL if there is none.
fn new_entry() -> *mut rdma_addrinfo {
    // SAFETY: calloc takes any numbers, and all zeros is an entry.
    unsafe { libc::calloc(1, size_of::<rdma_addrinfo>()) }.cast()
}

/// The entry for programs that name nothing to look up: their hints, as they are. A program that binds to an address it
/// has already (libfabric) finds its own flags in it again.
///
/// # Safety
///
/// The addresses in the hints are as long as they say.
unsafe fn same_as(hints: &rdma_addrinfo) -> *mut rdma_addrinfo {
    let place = new_entry();
    // SAFETY: NULL, or memory of that size.
    let Some(entry) = (unsafe { place.as_mut() }) else {
        return place;
    };
    entry.ai_flags = hints.ai_flags;
    entry.ai_family = hints.ai_family;
    entry.ai_qp_type = hints.ai_qp_type;
    entry.ai_port_space = hints.ai_port_space;
    // SAFETY: the caller's promise.
    unsafe {
        entry.ai_src_addr = copy(hints.ai_src_addr, hints.ai_src_len);
        entry.ai_dst_addr = copy(hints.ai_dst_addr, hints.ai_dst_len);
    }
    entry.ai_src_len = hints.ai_src_len;
    entry.ai_dst_len = hints.ai_dst_len;
    place
}

/// One entry for each address found.
///
/// # Safety
///
/// The pointers are what the program and the C library gave.
unsafe fn entry(found: &addrinfo, hints: Option<&rdma_addrinfo>, flags: c_int) -> *mut rdma_addrinfo {
    let place = new_entry();
    // SAFETY: NULL, or memory of that size.
    let Some(entry) = (unsafe { place.as_mut() }) else {
        return place;
    };
    (entry.ai_port_space, entry.ai_qp_type) = kinds(hints);
    entry.ai_family = found.ai_family;
    // SAFETY: the caller's promise.
    unsafe {
        if flags & RAI_PASSIVE != 0 {
            entry.ai_flags = RAI_PASSIVE;
            entry.ai_src_addr = copy(found.ai_addr, found.ai_addrlen);
            entry.ai_src_len = found.ai_addrlen;
        } else {
            entry.ai_dst_addr = copy(found.ai_addr, found.ai_addrlen);
            entry.ai_dst_len = found.ai_addrlen;
            if let Some(hints) = hints.filter(|hints| hints.ai_src_len > 0) {
                entry.ai_src_addr = copy(hints.ai_src_addr, hints.ai_src_len);
                entry.ai_src_len = hints.ai_src_len;
            }
        }
    }
    place
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    answer: *mut *mut rdma_addrinfo,
) -> c_int {
    if answer.is_null() || (node.is_null() && service.is_null() && hints.is_null()) {
        return ANSWER.minus_one(
            "rdma_getaddrinfo",
            Err(refused(
                libc::EINVAL,
                "res is NULL, or node, service and hints all are",
                "pass where to put the answer, and a name or a port",
            )),
        );
    }
    // SAFETY: the program passes its hints or NULL.
    let hints = unsafe { hints.as_ref() };
    if let (Some(hints), true, true) = (hints, node.is_null(), service.is_null()) {
        // SAFETY: the program's addresses are as long as it says, and it passes where to put the answer.
        let same = unsafe {
            *answer = same_as(hints);
            *answer
        };
        return match same.is_null() {
            true => ANSWER.minus_one(
                "rdma_getaddrinfo",
                Err(refused(
                    libc::ENOMEM,
                    "there is no memory for the answer",
                    "free memory",
                )),
            ),
            false => 0,
        };
    }
    let flags = hints.map_or(0, |hints| hints.ai_flags);
    // SAFETY: all zeros are hints.
    let mut wanted: addrinfo = unsafe { std::mem::zeroed() };
    wanted.ai_socktype = match kinds(hints) {
        (RDMA_PS_UDP | RDMA_PS_IPOIB, _) => libc::SOCK_DGRAM,
        _ => libc::SOCK_STREAM,
    };
    if flags & RAI_PASSIVE != 0 {
        wanted.ai_flags |= libc::AI_PASSIVE;
    }
    if flags & RAI_NUMERICHOST != 0 {
        wanted.ai_flags |= libc::AI_NUMERICHOST;
    }
    if let Some(hints) = hints {
        wanted.ai_family = hints.ai_family;
    }
    let mut found: *mut addrinfo = std::ptr::null_mut();
    // SAFETY: the program passes strings or NULL; the answer is freed below.
    let code = unsafe { libc::getaddrinfo(node, service, &raw const wanted, &raw mut found) };
    if code != 0 {
        // As rdma-core: the code of getaddrinfo itself.
        return code;
    }
    // SAFETY: the list is the C library's until it is freed, and the program passes where to put ours.
    let first = unsafe {
        let first = found
            .as_ref()
            .map_or(std::ptr::null_mut(), |found| entry(found, hints, flags));
        libc::freeaddrinfo(found);
        *answer = first;
        first
    };
    if first.is_null() {
        return ANSWER.minus_one(
            "rdma_getaddrinfo",
            Err(refused(
                libc::ENOMEM,
                "there is no memory for the answer",
                "free memory",
            )),
        );
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_freeaddrinfo(mut entry: *mut rdma_addrinfo) {
    // SAFETY: the program gives back what it was given, all of it from malloc.
    while let Some(current) = unsafe { entry.as_mut() } {
        let next = current.ai_next;
        // SAFETY: as above.
        unsafe {
            libc::free(current.ai_src_addr.cast());
            libc::free(current.ai_dst_addr.cast());
            libc::free(entry.cast());
        }
        entry = next;
    }
}
