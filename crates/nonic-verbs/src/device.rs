//! The list of devices: one per network interface that has an address.
//!
//! A device, once seen, lives as long as the process: programs keep pointers to it across calls of
//! `ibv_get_device_list`, and there are only as many as interfaces. Read first: [`VerbsDevice`].

use crate::object::zeroed;
use libc::{c_char, c_int, c_void};
use nonic_abi::errno;
use nonic_abi::verbs::{IBV_NODE_CA, IBV_TRANSPORT_IB, ibv_device};
use nonic_engine::Device;
use nonic_engine::netdev::NetDevice;
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
        c.node_type = IBV_NODE_CA;
        c.transport_type = IBV_TRANSPORT_IB;
        let name = netdev.device_name();
        let uverbs = format!("uverbs{}", netdev.index);
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
        known.name == netdev.name && known.index == netdev.index
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

/// The device's 64-bit name, made of the interface's Ethernet address as an EUI-64.
pub(crate) fn guid(netdev: &NetDevice) -> u64 {
    let mac = netdev.mac.filter(|mac| *mac != [0; 6]);
    // Loopback has no address of its own: the interface's index keeps it apart from its neighbours.
    let m = mac.unwrap_or_else(|| {
        let [_, _, high, low] = netdev.index.to_be_bytes();
        [0, 0, 0, 0, high, low]
    });
    u64::from_be_bytes([m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]])
}

/// Copies text into a C array, cutting what does not fit.
pub(crate) fn copy_text(to: &mut [c_char], text: &str) {
    let room = to.len() - 1;
    for (to, from) in to.iter_mut().zip(text.bytes().take(room)) {
        *to = from.cast_signed();
    }
}

/// The devices there are now.
fn list() -> std::io::Result<Vec<*mut ibv_device>> {
    let interfaces = Device::list()?;
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    // Without an address there is nothing a program could do with a device, not even open it.
    let usable = interfaces.into_iter().filter(|netdev| !netdev.gids.is_empty());
    Ok(usable
        .map(|netdev| match known.iter().find(|device| device.is(&netdev)) {
            Some(device) => {
                *device.netdev.lock().unwrap_or_else(PoisonError::into_inner) = netdev;
                device.as_c()
            }
            None => {
                let device: &'static VerbsDevice = Box::leak(Box::new(VerbsDevice::new(netdev)));
                known.push(device);
                device.as_c()
            }
        })
        .collect())
}

/// The device that has an address.
pub(crate) fn with_address(address: IpAddr) -> Option<*mut ibv_device> {
    let mut listed = list().ok()?.into_iter();
    listed.find(|device| {
        // SAFETY: just listed.
        let device = unsafe { verbs_device(*device) };
        device.is_some_and(|device| {
            let gids = device.netdev().gids;
            gids.iter().any(|entry| entry.address.ip == address)
        })
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    // SAFETY: the program passes NULL or where to put the number.
    let count = unsafe { count.as_mut() };
    let devices = match list() {
        Ok(devices) => devices,
        Err(error) => {
            errno::set(error.raw_os_error().unwrap_or(libc::EIO));
            return std::ptr::null_mut();
        }
    };
    // SAFETY: calloc takes any numbers; one entry more, for the NULL at the end.
    let array = unsafe { libc::calloc(devices.len() + 1, size_of::<*mut ibv_device>()) };
    let array = array.cast::<*mut ibv_device>();
    if array.is_null() {
        errno::set(libc::ENOMEM);
        return array;
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
    device.map_or(0, |device| guid(&device.netdev()).to_be())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_index(device: *mut ibv_device) -> c_int {
    // SAFETY: the program passes a device of the list.
    let device = unsafe { verbs_device(device) };
    device.map_or(-1, |device| device.netdev().index.cast_signed())
}

/// A device that was listed before, by its interface.
pub(crate) fn find(interface: &str) -> Option<*mut ibv_device> {
    let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let device = known.iter().find(|device| device.netdev().name == interface)?;
    Some(device.as_c())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loopback() -> NetDevice {
        let devices = Device::list().expect("rtnetlink answers");
        devices
            .into_iter()
            .find(|device| device.loopback)
            .expect("a loopback interface")
    }

    #[test]
    fn guids_are_made_of_the_ethernet_address_or_of_the_index() {
        let mut netdev = loopback();
        netdev.mac = Some([0x02, 0xfc, 0, 0, 0, 1]);
        assert_eq!(guid(&netdev), 0x00fc_00ff_fe00_0001);
        netdev.mac = Some([0; 6]);
        netdev.index = 0x0102;
        assert_eq!(guid(&netdev), 0x0200_00ff_fe00_0102);
    }

    #[test]
    fn text_that_does_not_fit_is_cut_and_stays_terminated() {
        let mut array = [0; 4];
        copy_text(&mut array, "abcdef");
        assert_eq!(array, [b'a', b'b', b'c', 0].map(u8::cast_signed));
    }

    #[test]
    fn a_device_listed_twice_is_the_same() {
        let (first, second) = (list().expect("a list"), list().expect("a list"));
        assert!(!first.is_empty());
        assert_eq!(first, second);
    }
}
