//! Addresses: routes in queue pair attributes, address handles, and how to answer a datagram.

use crate::context::{Context, context};
use crate::object::{Object, argument, argument_mut, next_handle, object, reclaim, zeroed};
use crate::objects::reserve_unlisted;
use crate::pd::Pd;
use crate::query::is_iwarp;
use libc::c_int;
use nonic_abi::errno::{self, Errno};
use nonic_abi::verbs::*;
use nonic_core::{Path, Qpn};
use nonic_engine::netdev::Gid;
use nonic_engine::{Device, log};
use std::cell::UnsafeCell;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// An address handle.
#[repr(C)]
pub(crate) struct Ah {
    c: UnsafeCell<ibv_ah>,
    pub(crate) gid_index: u8,
    pub(crate) ip: IpAddr,
    /// The queue pair the last datagram went to; its way is known.
    familiar: AtomicU32,
}

impl Ah {
    /// Before a datagram to a queue pair other than the last one's: finds the way there. Not in a turn at a shard.
    pub(crate) fn find_way(&self, device: &Device, qpn: u32) {
        if self.familiar.load(Relaxed) != qpn {
            device.find_way(self.gid_index, self.ip, Qpn::new(qpn));
            self.familiar.store(qpn, Relaxed);
        }
    }
}

// SAFETY: `repr(C)`, and the C structure is first.
unsafe impl Object for Ah {
    type C = ibv_ah;
}

/// The route that attributes describe. On Ethernet there is no way without a GID.
pub(crate) fn path(context: &Context, attr: &ibv_ah_attr) -> Result<Path, Errno> {
    let device = context.device();
    let table = device.verbs_gid_table();
    let index = attr.grh.sgid_index;
    let position = *table.get(usize::from(index)).ok_or_else(|| {
        let count = table.len();
        log::refused_call(&format_args!(
            "GID index {index} is out of range: the device has {count}. Try: use a GID index that the device has (`nonic devices`)"
        ));
        libc::EINVAL
    })?;
    let own = device.gids().get(position);
    // SAFETY: every bit pattern is an array of bytes.
    let remote = Gid(unsafe { attr.grh.dgid.raw }).ip();
    match own {
        Some(own) if attr.is_global != 0 && own.address.ip.is_ipv4() == remote.is_ipv4() => Ok(Path {
            gid_index: u8::try_from(position).map_err(|_| libc::EINVAL)?,
            remote,
        }),
        _ => Err(libc::EINVAL),
    }
}

/// # Safety
///
/// The pointer is what the program passed.
unsafe fn create(c_pd: *mut ibv_pd, attr: &ibv_ah_attr) -> Result<*mut ibv_ah, Errno> {
    // SAFETY: the caller's promise; a domain's context is open.
    let (pd, context) = unsafe {
        let pd = object::<Pd>(c_pd)?;
        (pd, context(pd.c_context())?)
    };
    if is_iwarp(context) {
        return Err(libc::EOPNOTSUPP);
    }
    if attr.port_num != 1 {
        return Err(libc::EINVAL);
    }
    let path = path(context, attr)?;
    reserve_unlisted()?;
    pd.users.join();
    let c = ibv_ah {
        context: pd.c_context(),
        pd: c_pd,
        handle: next_handle(),
    };
    let ah = Ah {
        c: UnsafeCell::new(c),
        gid_index: path.gid_index,
        ip: path.remote,
        familiar: AtomicU32::new(u32::MAX),
    };
    Ok(ah.leak())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    // SAFETY: the program passes a live domain and its structure.
    errno::pointer(unsafe { argument(attr).and_then(|attr| create(pd, attr)) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_ah(c_ah: *mut ibv_ah) -> c_int {
    // SAFETY: the program passes a live handle.
    let ah = unsafe { object::<Ah>(c_ah) };
    errno::code(ah.and_then(|ah| {
        // SAFETY: a handle keeps its domain from being destroyed; the program does not use the handle again.
        unsafe {
            object::<Pd>((*ah.c.get()).pd)?.users.leave();
            drop(reclaim::<Ah>(c_ah));
        }
        Ok(())
    }))
}

/// The two addresses of a received datagram, from the 40 bytes in front of it: an IPv6 header, or an IPv4
/// header in the last 20 of them.
fn addresses(grh: &ibv_grh) -> (IpAddr, IpAddr) {
    let version = u32::from_be(grh.version_tclass_flow) >> 28;
    // SAFETY: every bit pattern is an array of bytes.
    let (source, destination) = unsafe { (grh.sgid.raw, grh.dgid.raw) };
    if version == 6 {
        return (Gid(source).ip(), Gid(destination).ip());
    }
    // The IPv4 header begins at byte 20: its addresses are the last eight bytes of the destination GID.
    let ipv4 = |at: usize| {
        let [a, b, c, d] = [0, 1, 2, 3].map(|index| destination[at + index]);
        IpAddr::V4(Ipv4Addr::new(a, b, c, d))
    };
    (ipv4(8), ipv4(12))
}

fn answer_route(context: &Context, wc: &ibv_wc, grh: Option<&ibv_grh>) -> Result<ibv_ah_attr, Errno> {
    // Without the header there is no address to answer to.
    let grh = grh
        .filter(|_| wc.wc_flags & IBV_WC_GRH != 0)
        .ok_or(libc::EINVAL)?;
    let (source, destination) = addresses(grh);
    let gids = context.device().gids();
    let exact = gids.iter().position(|entry| entry.address.ip == destination);
    // What came to a group is answered from any address of the same family.
    let family = || {
        gids.iter()
            .position(|entry| entry.address.ip.is_ipv4() == source.is_ipv4())
    };
    let index = match exact {
        Some(index) => index,
        None if destination.is_multicast() => family().ok_or(libc::EINVAL)?,
        None => return Err(libc::EINVAL),
    };
    let table = context.device().verbs_gid_table();
    let index = table.iter().position(|position| *position == index);
    let mut attr: ibv_ah_attr = zeroed();
    attr.grh.dgid.raw = Gid::from(source).0;
    attr.grh.sgid_index = index
        .and_then(|index| u8::try_from(index).ok())
        .ok_or(libc::EINVAL)?;
    attr.grh.hop_limit = 64;
    attr.is_global = 1;
    attr.port_num = 1;
    Ok(attr)
}

/// # Safety
///
/// The pointers are what the program passed.
unsafe fn init_from_completion(
    context: &Context,
    port: u8,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
) -> Result<ibv_ah_attr, Errno> {
    if port != 1 {
        return Err(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    let (wc, grh) = unsafe { (argument(wc)?, argument(grh).ok()) };
    answer_route(context, wc, grh)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_init_ah_from_wc(
    c_context: *mut ibv_context,
    port: u8,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    attr: *mut ibv_ah_attr,
) -> c_int {
    // SAFETY: the program passes an open context and its structures.
    let (context, attr) = unsafe { (context(c_context), argument_mut(attr)) };
    errno::minus_one(context.and_then(|context| {
        // SAFETY: the program passes its structures.
        *attr? = unsafe { init_from_completion(context, port, wc, grh) }?;
        Ok(())
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_ah_from_wc(
    c_pd: *mut ibv_pd,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    port: u8,
) -> *mut ibv_ah {
    // SAFETY: the program passes a live domain, whose context is open, and its structures.
    let created = unsafe {
        object::<Pd>(c_pd)
            .and_then(|pd| context(pd.c_context()))
            .and_then(|context| init_from_completion(context, port, wc, grh))
            .and_then(|attr| create(c_pd, &attr))
    };
    errno::pointer(created)
}

/// The Ethernet address behind a GID. The kernel finds it when it sends; programs only want an answer.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_resolve_eth_l2_from_gid(
    c_context: *mut ibv_context,
    attr: *mut ibv_ah_attr,
    mac: *mut [u8; 6],
    vlan: *mut u16,
) -> c_int {
    const NO_VLAN: u16 = 0xffff;
    // SAFETY: the program passes an open context and its structures.
    let (context, attr) = unsafe { (context(c_context), argument(attr)) };
    errno::code(context.and_then(|context| {
        path(context, attr?)?;
        // SAFETY: the program passes where to put the answers, or NULL.
        unsafe {
            *argument_mut(mac)? = context.device().netdev().mac.unwrap_or_default();
            if let Ok(vlan) = argument_mut(vlan) {
                *vlan = NO_VLAN;
            }
        }
        Ok(())
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grh(bytes: [u8; 40]) -> ibv_grh {
        // SAFETY: a structure of integers and bytes, of this size.
        unsafe { std::mem::transmute(bytes) }
    }

    #[test]
    fn an_ipv4_header_stands_in_the_last_twenty_bytes() {
        let mut bytes = [0; 40];
        bytes[20] = 0x45;
        bytes[32..36].copy_from_slice(&[192, 0, 2, 1]);
        bytes[36..].copy_from_slice(&[192, 0, 2, 9]);
        let expected = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 9]));
        assert_eq!(addresses(&grh(bytes)), expected);
    }

    #[test]
    fn an_ipv6_header_is_all_forty() {
        let mut bytes = [0; 40];
        bytes[0] = 0x60;
        bytes[8] = 0xfd;
        bytes[23] = 1;
        bytes[24] = 0xfd;
        bytes[39] = 2;
        let address = |text: &str| text.parse::<IpAddr>().expect("a literal address");
        assert_eq!(addresses(&grh(bytes)), (address("fd00::1"), address("fd00::2")));
    }
}
