//! Addresses: routes in queue pair attributes, address handles, and how to answer a datagram.

use crate::context::{Context, context};
use crate::object::{Object, argument, argument_mut, next_handle, object, reclaim, zeroed};
use crate::objects::reserve_unlisted;
use crate::pd::Pd;
use crate::query::is_iwarp;
use crate::refusal::ANSWER;
use libc::c_int;
use nonic_abi::errno::{Errno, refused};
use nonic_abi::verbs::*;
use nonic_core::{Path, Qpn};
use nonic_engine::Device;
use nonic_engine::netdev::Gid;
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
        refused(
            libc::EINVAL,
            format!(
                "grh.sgid_index is {index}, and the device has {count} GIDs: this GID index is out of range"
            ),
            "use a GID index that the device has (`nonic devices`)",
        )
    })?;
    let own = device.gids().get(position);
    // SAFETY: every bit pattern is an array of bytes.
    let remote = Gid(unsafe { attr.grh.dgid.raw }).ip();
    match (own, u8::try_from(position)) {
        (Some(own), Ok(gid_index)) if attr.is_global != 0 && leads_to(own.address.ip, remote) => {
            Ok(Path { gid_index, remote })
        }
        (own, _) => Err(no_way(attr, own.map(|own| own.address.ip), remote)),
    }
}

/// Whether packets can go from one address to the other.
fn leads_to(own: IpAddr, remote: IpAddr) -> bool {
    own.is_ipv4() == remote.is_ipv4() && !remote.is_unspecified()
}

/// Why attributes describe no route: the mistakes that programs written for InfiniBand make.
#[cold]
fn no_way(attr: &ibv_ah_attr, own: Option<IpAddr>, remote: IpAddr) -> Errno {
    let index = attr.grh.sgid_index;
    if attr.is_global == 0 {
        return refused(
            libc::EINVAL,
            "is_global is 0, and RoCE has no LIDs: it needs is_global and a GID",
            "set is_global to 1 and grh.dgid and grh.sgid_index; `ibv_rc_pingpong` and the like do it with `-g 1`, \
             perftest with `-x 1`, qperf with `-cm1`",
        );
    }
    if remote.is_unspecified() {
        return refused(
            libc::EINVAL,
            "grh.dgid is ::, which is no address",
            "set it to the GID that the peer got from ibv_query_gid",
        );
    }
    let own = own.map_or("none".into(), |own| own.to_string());
    refused(
        libc::EINVAL,
        format!(
            "grh.dgid is {remote} and the GID at grh.sgid_index {index} is {own}: they are not of one IP version"
        ),
        "use the sgid_index of an address of the same IP version (`nonic devices`)",
    )
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
        return Err(refused(
            libc::EOPNOTSUPP,
            "address handles are for datagrams, which iWARP does not have",
            "use a RoCE device, or connect with rdma_connect",
        ));
    }
    if attr.port_num != 1 {
        return Err(refused(
            libc::EINVAL,
            format!("attr.port_num is {}", attr.port_num),
            "every device has one port, number 1",
        ));
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
    ANSWER.pointer("ibv_create_ah", unsafe {
        argument(attr).and_then(|attr| create(pd, attr))
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_ah(c_ah: *mut ibv_ah) -> c_int {
    // SAFETY: the program passes a live handle.
    let ah = unsafe { object::<Ah>(c_ah) };
    ANSWER.code(
        "ibv_destroy_ah",
        ah.and_then(|ah| {
            // SAFETY: a handle keeps its domain from being destroyed; the program does not use the handle again.
            unsafe {
                object::<Pd>((*ah.c.get()).pd)?.users.leave();
                drop(reclaim::<Ah>(c_ah));
            }
            Ok(())
        }),
    )
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
    let grh = grh.filter(|_| wc.wc_flags & IBV_WC_GRH != 0).ok_or_else(|| {
        refused(
            libc::EINVAL,
            "the completion came without a GRH: its wc_flags lack IBV_WC_GRH, or grh is NULL",
            "pass the completion of a datagram, and as grh the first 40 bytes of its receive buffer",
        )
    })?;
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
        None if destination.is_multicast() => family().ok_or_else(|| {
            refused(
                libc::EINVAL,
                "the device has no address of the IP version of the datagram",
                "give the interface such an address (`ip address`)",
            )
        })?,
        None => {
            return Err(refused(
                libc::EINVAL,
                "the datagram was for an address that is not the device's",
                "pass the first 40 bytes of the receive buffer as grh, and the context the datagram came to",
            ));
        }
    };
    let table = context.device().verbs_gid_table();
    let index = table.iter().position(|position| *position == index);
    let mut attr: ibv_ah_attr = zeroed();
    attr.grh.dgid.raw = Gid::from(source).0;
    attr.grh.sgid_index = index.and_then(|index| u8::try_from(index).ok()).ok_or_else(|| {
        refused(
            libc::EINVAL,
            "the address of the device has no GID index",
            "look at `nonic devices`",
        )
    })?;
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
        return Err(refused(
            libc::EINVAL,
            format!("port_num is {port}"),
            "every device has one port, number 1",
        ));
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
    ANSWER.minus_one(
        "ibv_init_ah_from_wc",
        context.and_then(|context| {
            // SAFETY: the program passes its structures.
            *attr? = unsafe { init_from_completion(context, port, wc, grh) }?;
            Ok(())
        }),
    )
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
    ANSWER.pointer("ibv_create_ah_from_wc", created)
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
    ANSWER.code(
        "ibv_resolve_eth_l2_from_gid",
        context.and_then(|context| {
            path(context, attr?)?;
            // SAFETY: the program passes where to put the answers, or NULL.
            unsafe {
                *argument_mut(mac)? = context.device().netdev().mac.unwrap_or_default();
                if let Ok(vlan) = argument_mut(vlan) {
                    *vlan = NO_VLAN;
                }
            }
            Ok(())
        }),
    )
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
