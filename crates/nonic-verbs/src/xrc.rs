//! XRC domains: which shared receive queues a connection from a peer can reach.
//!
//! Programs share a domain through a file. Here the file finds it again within one open device; the engine of
//! another process, or of another context, has domains of its own.

use crate::context::{Shared, context, identity_of};
use crate::object::{Object, Users, argument, object, reclaim};
use crate::refusal::ANSWER;
use libc::c_int;
use nonic_abi::errno::{Errno, refused};
use nonic_abi::verbs::*;
use nonic_core::XrcDomain;
use std::cell::UnsafeCell;
use std::sync::Arc;

/// A program's handle to a domain.
#[repr(C)]
pub(crate) struct Xrcd {
    c: UnsafeCell<ibv_xrcd>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) users: Users,
    domain: Arc<XrcDomain>,
}

// SAFETY: `repr(C)`, and the C structure is first.
unsafe impl Object for Xrcd {
    type C = ibv_xrcd;
}

impl Xrcd {
    pub(crate) fn domain(&self) -> XrcDomain {
        *self.domain
    }

    /// The context the program opened it from.
    pub(crate) fn c_context(&self) -> *mut ibv_context {
        // SAFETY: set when it was opened, and never again.
        unsafe { (*self.c.get()).context }
    }
}

/// The domain a program asks for: that of a file, or one that no other program can find.
fn find_or_make(shared: &Shared, attr: &ibv_xrcd_init_attr) -> Result<Arc<XrcDomain>, Errno> {
    let required = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    if attr.comp_mask != required || attr.oflags & !(libc::O_CREAT | libc::O_EXCL) != 0 {
        return Err(refused(
            libc::EINVAL,
            "attr.comp_mask lacks IBV_XRCD_INIT_ATTR_FD or _OFLAGS, or has other bits, or oflags has more than O_CREAT and O_EXCL",
            "set both bits, and oflags to O_CREAT",
        ));
    }
    let create = attr.oflags & libc::O_CREAT != 0;
    let make = || Arc::new(shared.device.alloc_xrc_domain());
    if attr.fd == -1 {
        return if create {
            Ok(make())
        } else {
            Err(refused(
                libc::EINVAL,
                "attr.fd is -1 and oflags lacks O_CREAT",
                "set O_CREAT: a domain without a file can only be made",
            ))
        };
    }
    let file = identity_of(attr.fd)?;
    let mut objects = shared.objects();
    match objects.domains.find(file) {
        Some(_) if attr.oflags & libc::O_EXCL != 0 => Err(refused(
            libc::EINVAL,
            "attr.oflags has O_EXCL, and the file has a domain already",
            "leave O_EXCL out, or use another file",
        )),
        Some(domain) => Ok(domain),
        None if create => {
            let domain = make();
            objects.domains.insert(file, &domain);
            Ok(domain)
        }
        None => Err(refused(
            libc::EAGAIN,
            "attr.oflags lacks O_CREAT, and the file has no domain in this context",
            "set O_CREAT; domains are not shared between processes",
        )),
    }
}

pub(crate) unsafe extern "C" fn open_xrcd(
    c_context: *mut ibv_context,
    attr: *mut ibv_xrcd_init_attr,
) -> *mut ibv_xrcd {
    // SAFETY: the program passes an open context and its structure.
    let (context, attr) = unsafe { (context(c_context), argument(attr)) };
    ANSWER.pointer(
        "ibv_open_xrcd",
        context.and_then(|context| {
            let domain = find_or_make(&context.shared, attr?)?;
            let xrcd = Xrcd {
                c: UnsafeCell::new(ibv_xrcd { context: c_context }),
                shared: Arc::clone(&context.shared),
                users: Users::default(),
                domain,
            };
            Ok(xrcd.leak())
        }),
    )
}

pub(crate) unsafe extern "C" fn close_xrcd(c_xrcd: *mut ibv_xrcd) -> c_int {
    // SAFETY: the program passes an open domain.
    let xrcd = unsafe { object::<Xrcd>(c_xrcd) };
    ANSWER.code(
        "ibv_close_xrcd",
        xrcd.and_then(|xrcd| {
            if xrcd.shared.is_elsewhere() {
                return Ok(());
            }
            xrcd.users.none()?;
            // SAFETY: the program does not use it again.
            drop(unsafe { reclaim::<Xrcd>(c_xrcd) });
            Ok(())
        }),
    )
}
