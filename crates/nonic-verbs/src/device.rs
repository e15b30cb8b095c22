//! The list of devices: one per network interface that has an address. Which of them programs are shown is the engine's
//! decision (its `device/listing.rs`).
//!
//! A device, once seen, lives as long as the process: programs keep pointers to it across calls of
//! `ibv_get_device_list`, and there are only as many as interfaces. Read first: [`VerbsDevice`].

use crate::object::zeroed;
use crate::refusal::ANSWER;
use libc::{c_char, c_int, c_void};
use nonic_abi::errno::{of_io, of_system, refused};
use nonic_abi::verbs::{IBV_NODE_CA, IBV_NODE_RNIC, IBV_TRANSPORT_IB, IBV_TRANSPORT_IWARP, ibv_device};
use nonic_engine::Device;
use nonic_engine::log::{self, Severity};
use nonic_engine::netdev::{NetDevice, Wire};
use std::io::ErrorKind;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

/// What an `ibv_device` pointer points to.
#[repr(C)]
pub(crate) struct VerbsDevice {
    c: ibv_device,
    /// Provider libraries compare what follows the structure with their own tables; it must not be NULL.
    provider: *const c_void,
    netdev: Mutex<NetDevice>,
}

// SAFETY: the C structure is never written after it was made, and the pointer in it is only compared.
unsafe impl Sync for VerbsDevice {}

/// Everything ever listed.
static KNOWN: Mutex<Vec<&'static VerbsDevice>> = Mutex::new(Vec::new());

impl VerbsDevice {
    fn new(netdev: NetDevice) -> Self {
        let mut c: ibv_device = zeroed();
        (c.node_type, c.transport_type) = match netdev.wire {
            Wire::Roce => (IBV_NODE_CA, IBV_TRANSPORT_IB),
            Wire::Iwarp => (IBV_NODE_RNIC, IBV_TRANSPORT_IWARP),
        };
        let name = netdev.device_name();
        let uverbs = format!("uverbs{}", netdev.number());
        copy_text(&mut c.name, &name);
        copy_text(&mut c.dev_name, &uverbs);
        copy_text(&mut c.dev_path, &format!("/sys/class/infiniband_verbs/{uverbs}"));
        copy_text(&mut c.ibdev_path, &format!("/sys/class/infiniband/{name}"));
        VerbsDevice {
            c,
            provider: (&raw const KNOWN).cast(),
            netdev: Mutex::new(netdev),
        }
    }

    /// The interface, as of the last listing.
    pub(crate) fn netdev(&self) -> NetDevice {
        self.netdev.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn as_c(&'static self) -> *mut ibv_device {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    fn is(&self, netdev: &NetDevice) -> bool {
        let known = self.netdev.lock().unwrap_or_else(PoisonError::into_inner);
        known.name == netdev.name && known.index == netdev.index && known.wire == netdev.wire
    }
}

/// The device behind a program's pointer.
///
/// # Safety
///
/// The pointer is NULL or came from `ibv_get_device_list`.
pub(crate) unsafe fn verbs_device(device: *mut ibv_device) -> Option<&'static VerbsDevice> {
    // SAFETY: the caller's promise; devices are never freed.
    unsafe { device.cast::<VerbsDevice>().as_ref() }
}

/// Copies text into a C array, cutting what does not fit.
pub(crate) fn copy_text(to: &mut [c_char], text: &str) {
    let room = to.len() - 1;
    for (to, from) in to.iter_mut().zip(text.bytes().take(room)) {
        *to = from as c_char;
    }
}

/// The devices that programs are shown now.
fn list() -> std::io::Result<Vec<*mut ibv_device>> {
    let listed = Device::list().inspect_err(|error| {
        // An error number cannot tell which of the variables is misspelt, and no program would say so.
        log::tell_always(Severity::Error, &format!("devices cannot be listed: {error}"));
    })?;
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(listed
        .into_iter()
        .map(|netdev| know(&mut known, netdev))
        .collect())
}

/// The device of an interface: the same at each listing.
fn know(known: &mut Vec<&'static VerbsDevice>, netdev: NetDevice) -> *mut ibv_device {
    if let Some(device) = known.iter().find(|device| device.is(&netdev)) {
        *device.netdev.lock().unwrap_or_else(PoisonError::into_inner) = netdev;
        return device.as_c();
    }
    let device: &'static VerbsDevice = Box::leak(Box::new(VerbsDevice::new(netdev)));
    known.push(device);
    device.as_c()
}

/// The device that has an address, also one that programs are not shown: a program that names `127.0.0.1` means it.
pub(crate) fn with_address(address: IpAddr) -> Option<*mut ibv_device> {
    let mut interfaces = Device::interfaces().ok()?.into_iter();
    let netdev = interfaces.find(|netdev| netdev.gids.iter().any(|entry| entry.address.ip == address))?;
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    Some(know(&mut known, netdev))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    // SAFETY: the program passes NULL or where to put the number.
    let count = unsafe { count.as_mut() };
    let devices = match list() {
        Ok(devices) => devices,
        Err(error) => {
            let errno = match error.kind() {
                ErrorKind::InvalidInput => refused(
                    libc::EINVAL,
                    error.to_string(),
                    "correct the setting (docs/settings.md)",
                ),
                _ => of_io("looking for network interfaces", &error),
            };
            return ANSWER.pointer("ibv_get_device_list", Err(errno));
        }
    };
    // SAFETY: calloc takes any numbers; one entry more, for the NULL at the end.
    let array = unsafe { libc::calloc(devices.len() + 1, size_of::<*mut ibv_device>()) };
    let array = array.cast::<*mut ibv_device>();
    if array.is_null() {
        return ANSWER.pointer("ibv_get_device_list", Err(of_system("calloc")));
    }
    // SAFETY: the array has room for all of them.
    unsafe { std::ptr::copy_nonoverlapping(devices.as_ptr(), array, devices.len()) };
    if let Some(count) = count {
        *count = devices.len() as c_int;
    }
    array
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: the program passes what `ibv_get_device_list` gave it: memory from calloc, or NULL.
    unsafe { libc::free(list.cast()) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    // SAFETY: the program passes a device of the list.
    match unsafe { verbs_device(device) } {
        Some(device) => device.c.name.as_ptr(),
        None => std::ptr::null(),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_guid(device: *mut ibv_device) -> u64 {
    // SAFETY: the program passes a device of the list.
    let device = unsafe { verbs_device(device) };
    device.map_or(0, |device| device.netdev().guid().to_be())
}

/// The kernel's number of the device: there is none. Programs take one for leave to ask the kernel about the device over
/// NETLINK_RDMA, where it knows nothing of ours (UCX complains aloud of the answer).
#[unsafe(no_mangle)]
extern "C" fn ibv_get_device_index(_device: *mut ibv_device) -> c_int {
    -1
}

/// A device that was listed before.
pub(crate) fn find(netdev: &NetDevice) -> Option<*mut ibv_device> {
    let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let device = known.iter().find(|device| device.is(netdev))?;
    Some(device.as_c())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_does_not_fit_is_cut_and_stays_terminated() {
        let mut array = [0; 4];
        copy_text(&mut array, "abcdef");
        assert_eq!(array, [b'a', b'b', b'c', 0].map(|byte| byte as c_char));
    }

    #[test]
    fn a_device_listed_twice_is_the_same() {
        let (first, second) = (list().expect("a list"), list().expect("a list"));
        assert!(!first.is_empty());
        assert_eq!(first, second);
    }
}
