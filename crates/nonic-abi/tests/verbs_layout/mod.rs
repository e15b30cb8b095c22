//! The structures programs share with us lie in memory as the system's headers say.
//!
//! A C program made from the list prints size and offset of every member, as gcc sees them; Rust has its own figures.
//! The list is complete: a structure of ours that is not in it, or one of the header that is in neither, fails.

mod list;

use crate::outcome::{missing, succeeded};
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// What every C program includes.
const HEADER: &str = "/usr/include/infiniband/verbs.h";

/// A structure or union, and its members by their path in C: offset and size.
pub(crate) struct Structure {
    kind: &'static str,
    name: &'static str,
    size: usize,
    members: Vec<(&'static str, usize, usize)>,
    /// The paths in Rust, to see that none is forgotten.
    ours: Vec<&'static str>,
}

/// A constant and its value.
pub(crate) type Constant = (&'static str, i128);

/// The size of what a pointer points to, which need not exist.
fn size_of_pointee<T>(_: *const T) -> usize {
    size_of::<T>()
}

macro_rules! structures {
    ($($kind:ident $name:ident {
        $($($path:ident).+ $(=> $c:literal)?),* $(,)?
    })*) => {
        vec![$({
            let place = std::mem::MaybeUninit::<$name>::uninit();
            let structure = place.as_ptr();
            let _ = structure;
            Structure {
                kind: stringify!($kind),
                name: stringify!($name),
                size: size_of::<$name>(),
                members: vec![$((
                    structures!(@c $($path).+ $(=> $c)?),
                    std::mem::offset_of!($name, $($path).+),
                    // SAFETY: the pointer is to memory of that size; nothing is read through it.
                    crate::verbs_layout::size_of_pointee(unsafe { &raw const (*structure).$($path).+ }),
                )),*],
                ours: vec![$(concat!($(stringify!($path), ".",)+)),*],
            }
        }),*]
    };
    (@c $($path:ident).+ => $c:literal) => { $c };
    (@c $first:ident $(.$path:ident)*) => { concat!(stringify!($first) $(, ".", stringify!($path))*) };
}
pub(crate) use structures;

macro_rules! constants {
    ($($name:ident)*) => { vec![$((stringify!($name), $name as i128)),*] };
}
pub(crate) use constants;

/// Parts of structures that have no name of their own in C, and those of later releases.
const WITHOUT_NAME: [(&str, &str); 11] = [
    ("ibv_async_element", "ibv_async_event.element"),
    ("ibv_gid_global", "ibv_gid.global"),
    ("ibv_odp_transport_caps", "ibv_odp_caps.per_transport_caps"),
    ("ibv_qp_ex_with_flush", "rdma-core 46 added a member to ibv_qp_ex"),
    ("ibv_wr_atomic", "ibv_send_wr.wr.atomic"),
    ("ibv_wr_bind_mw", "ibv_send_wr.bind_mw"),
    ("ibv_wr_extra", "the anonymous union of bind_mw and tso"),
    ("ibv_wr_rdma", "ibv_send_wr.wr.rdma"),
    ("ibv_wr_remote", "ibv_send_wr.wr"),
    ("ibv_wr_tso", "ibv_send_wr.tso"),
    ("ibv_wr_ud", "ibv_send_wr.wr.ud"),
];

/// Constants that later releases brought; Debian's header does not know them.
const LATER: [&str; 7] = [
    "IBV_ACCESS_FLUSH_GLOBAL",
    "IBV_ACCESS_FLUSH_PERSISTENT",
    "IBV_DEVICE_ATOMIC_WRITE",
    "IBV_DEVICE_FLUSH_GLOBAL",
    "IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC",
    "IBV_QP_EX_WITH_FLUSH",
    "IBV_WR_FLUSH",
];

/// Structures of the header that nothing of ours reads or writes: the beginning of the name, and why.
const NOT_OURS: [(&str, &str); 5] = [
    ("ibv_counter", "flow counters are not offered"),
    ("ibv_flow", "flow steering is not offered"),
    ("ibv_ops_wr", "tag matching is not offered"),
    ("ibv_rwq_ind_table", "receive side scaling is not offered"),
    ("ibv_wq", "receive side scaling is not offered"),
];

#[test]
fn structures_and_constants_are_those_of_the_header() {
    if missing(HEADER) {
        return;
    }
    let (structures, mut constants) = (list::all_structures(), list::all_constants());
    constants.retain(|(name, _)| !LATER.contains(name));
    let printed = run_c(&source(&structures, &constants));
    let mut expected = String::new();
    // Writing to a string does not fail.
    for structure in &structures {
        let _ = writeln!(expected, "{} {}", structure.name, structure.size);
        for (path, offset, size) in &structure.members {
            let _ = writeln!(expected, "{}.{path} {offset} {size}", structure.name);
        }
    }
    for (name, value) in &constants {
        let _ = writeln!(expected, "{name} {value}");
    }
    let differences: Vec<String> = printed
        .lines()
        .zip(expected.lines())
        .filter(|(theirs, ours)| theirs != ours)
        .map(|(theirs, ours)| format!("the header has {theirs}, ours is {ours}"))
        .collect();
    assert!(differences.is_empty(), "{differences:#?}");
    assert_eq!(printed.lines().count(), expected.lines().count());
}

#[test]
fn everything_of_ours_is_compared() {
    let structures = list::all_structures();
    let constants = list::all_constants();
    for line in our_lines() {
        let words: Vec<&str> = line
            .split([' ', ':', '{'])
            .filter(|word| !word.is_empty())
            .collect();
        match words[..] {
            ["pub", "const", name, ..] => {
                assert!(
                    constants.iter().any(|(known, _)| *known == name),
                    "{name} is not in the list"
                );
            }
            ["pub", "struct" | "union", name, ..] => {
                let known = structures.iter().any(|structure| structure.name == name)
                    || WITHOUT_NAME.iter().any(|(known, _)| *known == name);
                assert!(known, "{name} is not in the list");
            }
            _ => {}
        }
    }
}

#[test]
fn every_member_of_ours_is_compared() {
    let structures = list::all_structures();
    let mut current = None;
    let mut compared = 0;
    for line in our_lines() {
        let words: Vec<&str> = line
            .split([' ', ':', '{'])
            .filter(|word| !word.is_empty())
            .collect();
        match words[..] {
            ["pub", "struct" | "union", name, ..] => {
                current = structures.iter().find(|structure| structure.name == name);
            }
            ["pub", member, ..] if line.starts_with("    pub ") => {
                let Some(structure) = current else { continue };
                let prefix = format!("{}.", member.trim_start_matches("r#"));
                let known = structure.ours.iter().any(|path| path.starts_with(&prefix));
                assert!(known, "{}.{member} is not in the list", structure.name);
                compared += 1;
            }
            _ => {}
        }
    }
    assert!(compared > 300, "{compared} members were found");
}

#[test]
fn every_structure_of_the_header_is_ours_or_excused() {
    if missing(HEADER) {
        return;
    }
    let structures = list::all_structures();
    let header = std::fs::read_to_string(HEADER).expect("it exists");
    for line in header.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let ["struct" | "union", name, "{"] = words[..] else {
            continue;
        };
        let known = structures.iter().any(|structure| structure.name == name)
            || NOT_OURS.iter().any(|(prefix, _)| name.starts_with(prefix));
        assert!(known, "{name} is not compared");
    }
}

/// The lines of our module, without comments.
fn our_lines() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/verbs");
    let mut lines = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the module is a folder") {
        let text = std::fs::read_to_string(entry.expect("it can be listed").path()).expect("a source file");
        lines.extend(
            text.lines()
                .filter(|line| !line.trim().starts_with("//"))
                .map(str::to_owned),
        );
    }
    lines
}

/// The C program.
fn source(structures: &[Structure], constants: &[Constant]) -> String {
    let mut text = String::from(
        "#include <infiniband/verbs.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void)\n{\n",
    );
    for Structure {
        kind, name, members, ..
    } in structures
    {
        let _ = writeln!(text, "printf(\"{name} %zu\\n\", sizeof({kind} {name}));");
        for (path, ..) in members {
            let _ = writeln!(
                text,
                "printf(\"{name}.{path} %zu %zu\\n\", offsetof({kind} {name}, {path}), \
                 sizeof((({kind} {name} *)0)->{path}));"
            );
        }
    }
    for (name, _) in constants {
        let _ = writeln!(text, "printf(\"{name} %lld\\n\", (long long){name});");
    }
    text + "return 0;\n}\n"
}

/// What a C program prints.
fn run_c(source: &str) -> String {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let (file, program) = (folder.path().join("layout.c"), folder.path().join("layout"));
    std::fs::write(&file, source).expect("a file can be written");
    let output = Command::new("cc")
        .arg("-o")
        .arg(&program)
        .arg(&file)
        .output()
        .expect("cc runs");
    succeeded(&output, "cc");
    succeeded(&Command::new(&program).output().expect("it runs"), "the program")
}
