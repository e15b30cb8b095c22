//! Path rewriting: which paths are ours, and where their files really are.
//!
//! A *virtual* path is what a program says (`/sys/class/infiniband/roce_lo/node_guid`); the file is at the same path below
//! the folder that `nonic run` made, the *tree*. Everything here works on bytes in memory that the caller brings: it is
//! called in front of the C library, also in signal handlers and between `vfork` and `exec`, where nothing may be allocated.
//!
//! A path with `..` is followed link by link, as the kernel would: what is left behind by it may be a link. Where that leads
//! out of our folders, the answer is the path it leads to, outside of the tree.
//!
//! Read first: [`rewrite`].

/// As long as the kernel lets a path be, with the zero at its end.
pub const PATH_MAX: usize = 4096;

/// Links that are followed for one path; the kernel follows as many.
const MAX_LINKS: usize = 40;

/// The folders that are ours, and everything below them.
pub const FOLDERS: [&str; 5] = [
    "/sys/class/infiniband",
    "/sys/class/infiniband_verbs",
    "/sys/class/infiniband_mad",
    "/dev/infiniband",
    DEVICES,
];

/// Where the devices are whose links are in `/sys/class/infiniband`.
pub const DEVICES: &str = "/sys/devices/nonic";

/// The folder in which an entry is ours if it is in the tree.
pub const PCI: &str = "/sys/bus/pci/devices";

/// Folders above ours, and beside them. None of them is a link, so `..` leaves them upwards.
const ABOVE: [&str; 8] = [
    "",
    "/sys",
    "/sys/class",
    "/sys/devices",
    "/sys/bus",
    "/sys/bus/pci",
    PCI,
    "/dev",
];

/// What becomes of a path.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is not ours: to be used as it is.
    Untouched,
    /// It is ours: [`Room::path`] is the file in the tree, [`Room::seen`] what programs call it.
    Ours,
    /// It goes through our folders and leaves them: [`Room::path`] is where it leads.
    Elsewhere,
    /// No path may be that long.
    TooLong,
}

/// Room for the answer, and for what is needed on the way.
#[derive(Debug)]
pub struct Room {
    /// The tree, and the virtual path behind it.
    path: Text,
    /// How long the tree's part of it is.
    tree: usize,
    /// What is still to be walked, at the end.
    ahead: [u8; PATH_MAX],
    /// What a link says.
    target: [u8; PATH_MAX],
    /// Where the answer begins.
    start: usize,
}

/// Bytes with a zero behind them.
#[derive(Debug)]
struct Text {
    bytes: [u8; PATH_MAX],
    length: usize,
}

impl Default for Room {
    fn default() -> Self {
        Room {
            path: Text {
                bytes: [0; PATH_MAX],
                length: 0,
            },
            tree: 0,
            ahead: [0; PATH_MAX],
            target: [0; PATH_MAX],
            start: 0,
        }
    }
}

impl Room {
    /// The path to use, with a zero behind it that is not part of it.
    pub fn path(&self) -> &[u8] {
        &self.path.bytes[self.start..self.path.length]
    }

    /// The path to use, zero included.
    pub fn path_with_zero(&self) -> &[u8] {
        &self.path.bytes[self.start..=self.path.length]
    }

    /// What programs call it.
    pub fn seen(&self) -> &[u8] {
        &self.path.bytes[self.tree..self.path.length]
    }
}

impl Text {
    /// Puts bytes at the end, if they fit with a zero behind them.
    fn push(&mut self, more: &[u8]) -> bool {
        let end = self.length + more.len();
        if end >= PATH_MAX {
            return false;
        }
        self.bytes[self.length..end].copy_from_slice(more);
        self.bytes[end] = 0;
        self.length = end;
        true
    }

    /// Takes the last component away, but nothing before `floor`.
    fn pop(&mut self, floor: usize) {
        let slash = self.bytes[floor..self.length]
            .iter()
            .rposition(|byte| *byte == b'/');
        self.cut(slash.map_or(floor, |slash| floor + slash));
    }

    fn cut(&mut self, length: usize) {
        self.length = length;
        self.bytes[length] = 0;
    }
}

/// Whether a path deserves a closer look: a glance that most paths do not survive.
pub fn is_candidate(path: &[u8]) -> bool {
    let mut components = components(path);
    path.first() == Some(&b'/')
        && matches!(components.next(), Some(b"sys" | b"dev"))
        && components
            .any(|component| component.starts_with(b"infiniband") || matches!(component, b"nonic" | b"pci"))
}

/// Whether a virtual path without `..`, double slashes and the like is one of our folders or below one.
fn is_ours(path: &[u8]) -> bool {
    FOLDERS.iter().any(|folder| is_within(path, folder.as_bytes()))
}

/// Whether a path is a folder or below it.
pub fn is_within(path: &[u8], folder: &[u8]) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
}

/// What a path in the tree is called by programs; nothing, if it is not in the tree.
pub fn seen<'a>(tree: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    path.strip_prefix(tree).filter(|rest| rest.first() == Some(&b'/'))
}

impl Room {
    /// Goes where the link leads that was just read, `length` bytes of it: puts it before what is ahead. There is space
    /// for it and a slash. Where what is ahead begins now.
    fn follow(&mut self, length: usize, position: usize) -> usize {
        if self.target.first() == Some(&b'/') {
            self.path.cut(self.tree);
        } else {
            self.path.pop(self.tree);
        }
        let start = position - 1 - length;
        self.ahead[position - 1] = b'/';
        self.ahead[start..start + length].copy_from_slice(&self.target[..length]);
        start
    }
}

/// Finds out about a path.
///
/// `read_link` answers what the link at a path says (the zero behind the path is included), or nothing if there is none.
pub fn rewrite(
    tree: &[u8],
    path: &[u8],
    room: &mut Room,
    read_link: impl Fn(&[u8], &mut [u8]) -> Option<usize>,
) -> Verdict {
    if !is_candidate(path) {
        return Verdict::Untouched;
    }
    if path.len() >= PATH_MAX {
        return Verdict::TooLong;
    }
    room.path.length = 0;
    room.tree = tree.len();
    if !room.path.push(tree) {
        return Verdict::TooLong;
    }
    let climbs = components(path).any(|component| component == b"..");
    let is_folder = matches!(path.rsplit(|byte| *byte == b'/').next(), Some(b"" | b"." | b".."));
    let mut position = PATH_MAX - path.len();
    room.ahead[position..].copy_from_slice(path);
    let (mut been_ours, mut links) = (false, 0);
    while let Some((start, end)) = next_component(&room.ahead, position) {
        position = end;
        let here = &room.path.bytes[tree.len()..room.path.length];
        if &room.ahead[start..end] == b".." {
            let known = is_ours(here) || ABOVE.iter().any(|folder| folder.as_bytes() == here);
            if known {
                room.path.pop(tree.len());
            } else if !been_ours {
                return Verdict::Untouched;
            } else if !room.path.push(b"/..") {
                // Only the kernel knows where that leads.
                return Verdict::TooLong;
            }
            continue;
        }
        if !(room.path.push(b"/") && room.path.push(&room.ahead[start..end])) {
            return Verdict::TooLong;
        }
        let here = &room.path.bytes[tree.len()..room.path.length];
        let ours = is_ours(here) || is_our_pci_device(here, &room.path, &mut room.target, &read_link);
        been_ours |= ours;
        let is_last = next_component(&room.ahead, position).is_none();
        if !climbs || !ours || is_last {
            continue;
        }
        // What `..` means further on depends on where this leads.
        let link = &room.path.bytes[..=room.path.length];
        let Some(length) = read_link(link, &mut room.target) else {
            continue;
        };
        links += 1;
        if links > MAX_LINKS || length + 1 > position {
            return Verdict::TooLong;
        }
        position = room.follow(length, position);
    }
    let here = &room.path.bytes[tree.len()..room.path.length];
    let ours = is_ours(here) || is_our_pci_device(here, &room.path, &mut room.target, &read_link);
    room.start = if ours { 0 } else { tree.len() };
    if is_folder && !room.path.push(b"/") {
        return Verdict::TooLong;
    }
    match (ours, been_ours) {
        (true, _) => Verdict::Ours,
        (false, true) => Verdict::Elsewhere,
        (false, false) => Verdict::Untouched,
    }
}

/// Whether a path is at or below one of the entries that the tree adds to the kernel's list of PCI devices.
fn is_our_pci_device(
    here: &[u8],
    path: &Text,
    target: &mut [u8],
    read_link: &impl Fn(&[u8], &mut [u8]) -> Option<usize>,
) -> bool {
    let Some(name) = here
        .strip_prefix(PCI.as_bytes())
        .and_then(|rest| rest.strip_prefix(b"/"))
    else {
        return false;
    };
    let name_length = name.iter().position(|byte| *byte == b'/').unwrap_or(name.len());
    let end = path.length - (name.len() - name_length);
    let mut link = [0; PATH_MAX];
    link[..end].copy_from_slice(&path.bytes[..end]);
    read_link(&link[..=end], target).is_some()
}

/// The parts of a path between slashes, without those that mean nothing.
fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/')
        .filter(|component| !component.is_empty() && *component != b".")
}

/// Where the next component is, from a position on.
fn next_component(path: &[u8], mut position: usize) -> Option<(usize, usize)> {
    loop {
        let start = position + path[position..].iter().position(|byte| *byte != b'/')?;
        let length = path[start..].iter().position(|byte| *byte == b'/');
        let end = length.map_or(path.len(), |length| start + length);
        if &path[start..end] != b"." {
            return Some((start, end));
        }
        position = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TREE: &[u8] = b"/run/tree";

    /// The links of a tree with one device.
    fn links(path: &[u8], to: &mut [u8]) -> Option<usize> {
        let target: &[u8] = match path {
            b"/run/tree/sys/class/infiniband/roce_x\0" => {
                b"../../devices/nonic/f000:00:00.2/infiniband/roce_x"
            }
            b"/run/tree/sys/devices/nonic/f000:00:00.2/infiniband/roce_x/device\0" => b"../..",
            b"/run/tree/sys/bus/pci/devices/f000:00:00.2\0" => b"../../../devices/nonic/f000:00:00.2",
            b"/run/tree/sys/devices/nonic/f000:00:00.2/net/x\0" => b"/sys/class/net/x",
            _ => return None,
        };
        to[..target.len()].copy_from_slice(target);
        Some(target.len())
    }

    fn rewritten(path: &str) -> Option<String> {
        let mut room = Room::default();
        match rewrite(TREE, path.as_bytes(), &mut room, links) {
            Verdict::Ours | Verdict::Elsewhere => {
                Some(String::from_utf8(room.path().to_vec()).expect("it was text"))
            }
            Verdict::Untouched | Verdict::TooLong => None,
        }
    }

    #[track_caller]
    fn expect(path: &str, to: impl Into<Option<&'static str>>) {
        assert_eq!(rewritten(path).as_deref(), to.into(), "{path}");
    }

    #[test]
    fn only_our_folders_are_in_the_tree() {
        expect("/sys/class/infiniband", "/run/tree/sys/class/infiniband");
        expect(
            "/sys/class/infiniband_verbs/abi_version",
            "/run/tree/sys/class/infiniband_verbs/abi_version",
        );
        expect("/dev/infiniband/uverbs2", "/run/tree/dev/infiniband/uverbs2");
        expect("/sys/class/infiniband_other", None);
        expect("/sys/class/net/infiniband", None);
        expect("/dev/infinibandx", None);
        expect("/home/sys/class/infiniband", None);
        expect("sys/class/infiniband", None);
        expect("", None);
        expect("/", None);
    }

    #[test]
    fn slashes_and_dots_mean_nothing_but_at_the_end() {
        expect("//sys/.///class//./infiniband", "/run/tree/sys/class/infiniband");
        expect("/sys/class/infiniband/", "/run/tree/sys/class/infiniband/");
        expect("/sys/class/infiniband/.", "/run/tree/sys/class/infiniband/");
    }

    #[test]
    fn the_way_up_is_that_of_the_links() {
        expect(
            "/sys/class/infiniband/roce_x/../..",
            "/run/tree/sys/devices/nonic/f000:00:00.2/",
        );
        expect(
            "/sys/class/infiniband/roce_x/device/../f000:00:00.2/numa_node",
            "/run/tree/sys/devices/nonic/f000:00:00.2/numa_node",
        );
        expect(
            "/sys/class/infiniband/../infiniband/roce_x",
            "/run/tree/sys/class/infiniband/roce_x",
        );
        expect("/sys/class/../class/infiniband", "/run/tree/sys/class/infiniband");
    }

    #[test]
    fn what_leaves_our_folders_leaves_the_tree() {
        expect("/sys/class/infiniband/../net/eth0", "/sys/class/net/eth0");
        expect(
            "/sys/class/infiniband/roce_x/device/net/x/../y",
            "/sys/class/net/x/../y",
        );
        expect("/sys/class/infiniband/../../../../etc/passwd", "/etc/passwd");
        // Where that leads, only the kernel knows.
        expect("/sys/class/net/eth0/../../infiniband", None);
    }

    #[test]
    fn of_the_pci_devices_only_those_in_the_tree_are_ours() {
        expect(
            "/sys/bus/pci/devices/f000:00:00.2/numa_node",
            "/run/tree/sys/bus/pci/devices/f000:00:00.2/numa_node",
        );
        expect("/sys/bus/pci/devices/0000:00:01.0/numa_node", None);
        expect("/sys/bus/pci/devices", None);
    }

    #[test]
    fn what_is_too_long_is_refused() {
        let mut room = Room::default();
        let path = format!("/sys/class/infiniband/{}", "x/".repeat(2040));
        assert_eq!(rewrite(TREE, path.as_bytes(), &mut room, links), Verdict::TooLong);
        let tree = [b'x'; PATH_MAX];
        assert_eq!(
            rewrite(&tree, b"/dev/infiniband", &mut room, links),
            Verdict::TooLong
        );
    }

    #[test]
    fn paths_of_the_tree_are_seen_without_it() {
        assert_eq!(seen(TREE, b"/run/tree/sys/class"), Some(&b"/sys/class"[..]));
        assert_eq!(seen(TREE, b"/run/trees/sys"), None);
        assert_eq!(seen(TREE, b"/etc"), None);
    }

    fn component() -> impl Strategy<Value = &'static str> {
        prop::sample::select(vec![
            "",
            ".",
            "..",
            "sys",
            "class",
            "dev",
            "devices",
            "nonic",
            "infiniband",
            "infiniband_verbs",
            "roce_x",
            "device",
            "net",
            "bus",
            "pci",
            "f000:00:00.2",
            "x",
        ])
    }

    proptest! {
        /// Whatever is asked for: in the tree, only our folders are reached, and never anything above it.
        #[test]
        fn nothing_escapes(components in prop::collection::vec(component(), 0..24)) {
            let path = format!("/{}", components.join("/"));
            let mut room = Room::default();
            match rewrite(TREE, path.as_bytes(), &mut room, links) {
                Verdict::Ours => {
                    let seen = seen(TREE, room.path()).expect("it is in the tree");
                    let plain = seen.strip_suffix(b"/").unwrap_or(seen);
                    prop_assert!(is_ours(plain) || is_within(plain, b"/sys/bus/pci/devices/f000:00:00.2"));
                    prop_assert!(!plain.split(|byte| *byte == b'/').skip(1).any(|part| matches!(part, b"" | b"." | b"..")));
                    prop_assert_eq!(seen, room.seen());
                }
                Verdict::Elsewhere => prop_assert!(super::seen(TREE, room.path()).is_none()),
                Verdict::Untouched | Verdict::TooLong => {}
            }
        }

        #[test]
        fn any_bytes_have_an_answer(path in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut room = Room::default();
            let mut whole = b"/sys/class/infiniband/".to_vec();
            whole.extend(path);
            let verdict = rewrite(TREE, &whole, &mut room, links);
            prop_assert!(verdict != Verdict::TooLong);
        }
    }
}
