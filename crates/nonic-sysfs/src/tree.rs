//! The content of the folder: the files of every device, as text, before anything is written.
//!
//! The layout is the kernel's: a device is a folder below a PCI address in `/sys/devices`, and `/sys/class` has links to it,
//! so that `..` and `device` lead where programs expect them to. The addresses are made up, one to a device: UCX remembers
//! what it knows of a device by them.

use crate::counters;
use crate::paths::{DEVICES, PCI};
use nonic_engine::netdev::{LinkState, NetDevice, Wire, verbs_gid_table};
use std::fmt::Write as _;

/// How many GIDs a device's table shows at least, those that are not there as zeros.
const MIN_GID_TABLE: usize = 32;
/// `IBV_PORT_CM_SUP` and `IBV_PORT_IP_BASED_GIDS`.
const PORT_CAPABILITIES: u32 = 1 << 16 | 1 << 26;
/// What the kernel says of its interface to libibverbs.
const VERBS_ABI: &str = "6";
/// And of that to libibumad.
const MAD_ABI: &str = "5";
/// The character device that stands for each of ours. Every user can open it, and no more is expected of it.
const CHARACTER_DEVICE: &str = "/dev/null";
/// Its number.
const CHARACTER_DEVICE_NUMBER: &str = "1:3";

/// A file or a link of the folder.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Node {
    /// A file with this content.
    File(String),
    /// A link to this path.
    Link(String),
    /// A folder that may be empty.
    Folder,
}

/// What there is, by path (without the slash in front).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Tree {
    nodes: Vec<(String, Node)>,
}

impl Tree {
    /// The files of these devices, on a machine with so many processors.
    pub fn of(devices: &[NetDevice], processors: usize) -> Self {
        let mut tree = Tree::default();
        for folder in [
            "sys/class/infiniband",
            "sys/class/infiniband_mad",
            "dev/infiniband",
        ] {
            tree.nodes.push((folder.to_owned(), Node::Folder));
        }
        tree.line("sys/class/infiniband_verbs/abi_version", VERBS_ABI);
        tree.line("sys/class/infiniband_mad/abi_version", MAD_ABI);
        tree.link("dev/infiniband/rdma_cm", CHARACTER_DEVICE);
        for device in devices {
            tree.device(device, processors);
        }
        tree
    }

    /// Everything, in an order in which a folder's name comes with its first file.
    pub fn nodes(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.nodes.iter().map(|(path, node)| (path.as_str(), node))
    }

    fn device(&mut self, device: &NetDevice, processors: usize) {
        let (name, address) = (device.device_name(), pci_address(device.number()));
        let uverbs = format!("uverbs{}", device.number());
        let parent = format!("{}/{address}", relative(DEVICES));
        self.pci_device(&parent, device, processors);
        self.link(
            &format!("{}/{address}", relative(PCI)),
            &format!("../../../devices/nonic/{address}"),
        );

        let folder = format!("{parent}/infiniband/{name}");
        self.link(
            &format!("sys/class/infiniband/{name}"),
            &format!("../../devices/nonic/{address}/infiniband/{name}"),
        );
        self.link(&format!("{folder}/device"), "../..");
        let guid = guid_text(device.guid());
        let node_type = match device.wire {
            Wire::Roce => "1: CA",
            Wire::Iwarp => "4: RNIC",
        };
        let lines = [
            ("node_guid", guid.as_str()),
            ("sys_image_guid", &guid),
            ("node_type", node_type),
            ("node_desc", "nonic"),
            ("fw_ver", env!("CARGO_PKG_VERSION")),
            ("hca_type", "nonic"),
            ("hw_rev", "0"),
            ("board_id", "nonic"),
        ];
        for (file, text) in lines {
            self.line(&format!("{folder}/{file}"), text);
        }
        self.port(&format!("{folder}/ports/1"), device);

        let verbs = format!("{parent}/infiniband_verbs/{uverbs}");
        self.link(
            &format!("sys/class/infiniband_verbs/{uverbs}"),
            &format!("../../devices/nonic/{address}/infiniband_verbs/{uverbs}"),
        );
        self.link(&format!("{verbs}/device"), "../..");
        self.line(&format!("{verbs}/ibdev"), &name);
        self.line(&format!("{verbs}/dev"), CHARACTER_DEVICE_NUMBER);
        // That of a provider which the kernel and a library of its own would agree on. There is none.
        self.line(&format!("{verbs}/abi_version"), "1");
        self.link(&format!("dev/infiniband/{uverbs}"), CHARACTER_DEVICE);
    }

    /// What a slot of the machine would say. Its speed and its driver are not known, so there are no files for those.
    fn pci_device(&mut self, folder: &str, device: &NetDevice, processors: usize) {
        let last = processors.saturating_sub(1);
        let list = if last == 0 {
            "0".to_owned()
        } else {
            format!("0-{last}")
        };
        let lines = [
            ("vendor", "0xffff"),
            ("device", "0xffff"),
            ("subsystem_vendor", "0xffff"),
            ("subsystem_device", "0xffff"),
            // A network controller that is not Ethernet, as InfiniBand's are.
            ("class", "0x020700"),
            // Near all processors alike.
            ("numa_node", "-1"),
            ("local_cpulist", &list),
            ("local_cpus", &processor_mask(processors)),
        ];
        for (file, text) in lines {
            self.line(&format!("{folder}/{file}"), text);
        }
        self.link(
            &format!("{folder}/net/{}", device.name),
            &format!("/sys/class/net/{}", device.name),
        );
    }

    fn port(&mut self, folder: &str, device: &NetDevice) {
        let up = device.up && device.link == LinkState::Up;
        let lines = [
            ("state", if up { "4: ACTIVE" } else { "1: DOWN" }),
            ("phys_state", if up { "5: LinkUp" } else { "3: Disabled" }),
            ("rate", "100 Gb/sec (4X EDR)"),
            ("lid", "0x0"),
            ("lid_mask_count", "0"),
            ("sm_lid", "0x0"),
            ("sm_sl", "0"),
            ("cap_mask", &format!("{PORT_CAPABILITIES:#010x}")),
            ("link_layer", "Ethernet"),
            ("pkeys/0", "0xffff"),
        ];
        for (file, text) in lines {
            self.line(&format!("{folder}/{file}"), text);
        }
        for counter in &counters::ALL {
            self.line(&format!("{folder}/{}/{}", counter.folder, counter.name), "0");
        }
        if device.wire == Wire::Iwarp {
            self.line(&format!("{folder}/gids/0"), &groups(&device.rnic_gid().0));
            return;
        }
        let table = verbs_gid_table(device.loopback, &device.gids);
        for index in 0..table.len().max(MIN_GID_TABLE) {
            let entry = table.get(index).map(|place| &device.gids[*place]);
            let gid = entry.map_or([0; 16], |entry| entry.gid.0);
            self.line(&format!("{folder}/gids/{index}"), &groups(&gid));
            if entry.is_some() {
                self.line(&format!("{folder}/gid_attrs/types/{index}"), "RoCE v2");
                self.line(&format!("{folder}/gid_attrs/ndevs/{index}"), &device.name);
            }
        }
    }

    fn line(&mut self, path: &str, text: &str) {
        self.nodes
            .push((path.to_owned(), Node::File(format!("{text}\n"))));
    }

    /// Something that sets it apart.
    #[cfg(test)]
    pub(crate) fn line_for_tests(&mut self, number: usize) {
        self.line("number", &number.to_string());
    }

    fn link(&mut self, path: &str, target: &str) {
        self.nodes.push((path.to_owned(), Node::Link(target.to_owned())));
    }
}

/// An address like those of PCI devices, in domains from f000 on, where machines have none. One to an interface.
pub fn pci_address(index: u32) -> String {
    let (domain, bus) = (0xf000 | index >> 16 & 0xfff, index >> 8 & 0xff);
    format!("{domain:04x}:{bus:02x}:{:02x}.{}", index >> 3 & 0x1f, index & 7)
}

fn guid_text(guid: u64) -> String {
    groups(&guid.to_be_bytes())
}

/// Bytes as the kernel writes them: four digits, a colon, and so on.
fn groups(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (index, pair) in bytes.chunks_exact(2).enumerate() {
        let colon = if index == 0 { "" } else { ":" };
        let _ = write!(text, "{colon}{:02x}{:02x}", pair[0], pair[1]);
    }
    text
}

/// One bit to a processor, in words of 32 with commas between them, as the kernel writes it.
fn processor_mask(processors: usize) -> String {
    let bits = processors.max(1);
    let (whole, rest) = (bits / 32, bits % 32);
    let mut words = Vec::new();
    if rest > 0 {
        words.push(format!("{:x}", (1_u64 << rest) - 1));
    }
    words.extend(std::iter::repeat_n("ffffffff".to_owned(), whole));
    words.join(",")
}

/// A path as it is below the folder.
fn relative(path: &str) -> &str {
    path.trim_start_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;
    use nonic_engine::netdev::{GidEntry, LocalAddress};
    use std::net::IpAddr;

    fn device(index: u32, name: &str) -> NetDevice {
        let address = LocalAddress::from(IpAddr::from([192, 0, 2, 1]));
        NetDevice {
            name: name.to_owned(),
            index,
            mtu: 1500,
            up: true,
            link: LinkState::Up,
            loopback: false,
            mac: Some([2, 0, 0, 0, 0, 7]),
            gids: vec![GidEntry::from(address)],
            wire: Wire::Roce,
        }
    }

    fn content(tree: &Tree, path: &str) -> Option<String> {
        let node = tree.nodes().find(|(found, _)| *found == path)?.1;
        match node {
            Node::File(text) => Some(text.clone()),
            Node::Link(target) => Some(format!("→ {target}")),
            Node::Folder => None,
        }
    }

    #[test]
    fn a_device_has_the_files_of_the_kernels_layout() {
        let tree = Tree::of(&[device(2, "eth0")], 2);
        let folder = "sys/devices/nonic/f000:00:00.2/infiniband/roce_eth0";
        let expected = [
            (
                "sys/class/infiniband/roce_eth0",
                "→ ../../devices/nonic/f000:00:00.2/infiniband/roce_eth0",
            ),
            (&format!("{folder}/device"), "→ ../.."),
            (&format!("{folder}/node_guid"), "0000:00ff:fc00:0007\n"),
            (&format!("{folder}/ports/1/state"), "4: ACTIVE\n"),
            (
                &format!("{folder}/ports/1/gids/0"),
                "0000:0000:0000:0000:0000:ffff:c000:0201\n",
            ),
            // Without a link-local address the first one stands at both indices that programs have built in.
            (
                &format!("{folder}/ports/1/gids/1"),
                "0000:0000:0000:0000:0000:ffff:c000:0201\n",
            ),
            (
                &format!("{folder}/ports/1/gids/31"),
                "0000:0000:0000:0000:0000:0000:0000:0000\n",
            ),
            (&format!("{folder}/ports/1/gid_attrs/types/0"), "RoCE v2\n"),
            (&format!("{folder}/ports/1/gid_attrs/ndevs/0"), "eth0\n"),
            (&format!("{folder}/ports/1/cap_mask"), "0x04010000\n"),
            (
                "sys/class/infiniband_verbs/uverbs2",
                "→ ../../devices/nonic/f000:00:00.2/infiniband_verbs/uverbs2",
            ),
            (
                "sys/devices/nonic/f000:00:00.2/infiniband_verbs/uverbs2/ibdev",
                "roce_eth0\n",
            ),
            ("sys/devices/nonic/f000:00:00.2/local_cpus", "3\n"),
            ("dev/infiniband/uverbs2", "→ /dev/null"),
        ];
        for (path, text) in expected {
            assert_eq!(content(&tree, path).as_deref(), Some(text), "{path}");
        }
        assert_eq!(
            content(&tree, &format!("{folder}/ports/1/gid_attrs/types/2")),
            None
        );
    }

    #[test]
    fn without_devices_there_are_folders_all_the_same() {
        let tree = Tree::of(&[], 1);
        assert!(
            tree.nodes()
                .any(|(path, node)| path == "sys/class/infiniband" && *node == Node::Folder)
        );
    }

    #[test]
    fn no_two_interfaces_have_one_address() {
        let addresses: std::collections::BTreeSet<_> = (0..0x2_0000).map(pci_address).collect();
        assert_eq!(addresses.len(), 0x2_0000);
        assert_eq!(pci_address(0x12345), "f001:23:08.5");
    }

    #[test]
    fn processors_are_bits_in_words() {
        assert_eq!(processor_mask(1), "1");
        assert_eq!(processor_mask(32), "ffffffff");
        assert_eq!(processor_mask(36), "f,ffffffff");
    }
}
