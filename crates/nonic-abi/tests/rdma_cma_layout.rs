//! The structures programs share with us lie in memory as the system's headers say.

use crate::outcome::{missing, succeeded};
use nonic_abi::rdma_cma::*;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// A structure: its name, its size, its members with their offsets.
type Structure = (&'static str, usize, Vec<(&'static str, usize)>);

macro_rules! structures {
    ($($name:ident { $($member:ident $(=> $c:literal)?),* })*) => {
        vec![$((
            stringify!($name),
            size_of::<$name>(),
            vec![$((structures!(@c $member $(=> $c)?), std::mem::offset_of!($name, $member))),*],
        )),*]
    };
    (@c $member:ident => $c:literal) => { $c };
    (@c $member:ident) => { stringify!($member) };
}

fn all() -> Vec<Structure> {
    structures! {
        rdma_ib_addr { sgid, dgid, pkey }
        rdma_addr { src_storage, dst_storage, addr }
        ibv_sa_path_rec { dgid, sgid, dlid, slid, raw_traffic, flow_label, hop_limit, traffic_class, reversible,
            numb_path, pkey, sl, mtu_selector, mtu, rate_selector, rate, packet_life_time_selector,
            packet_life_time, preference }
        rdma_route { addr, path_rec, num_paths }
        rdma_event_channel { fd }
        rdma_cm_id { verbs, channel, context, qp, route, ps, port_num, event, send_cq_channel, send_cq,
            recv_cq_channel, recv_cq, srq, pd, qp_type }
        rdma_conn_param { private_data, private_data_len, responder_resources, initiator_depth, flow_control,
            retry_count, rnr_retry_count, srq, qp_num }
        rdma_ud_param { private_data, private_data_len, ah_attr, qp_num, qkey }
        rdma_cm_event { id, listen_id, event, status, param }
        rdma_addrinfo { ai_flags, ai_family, ai_qp_type, ai_port_space, ai_src_len, ai_dst_len, ai_src_addr,
            ai_dst_addr, ai_src_canonname, ai_dst_canonname, ai_route_len, ai_route, ai_connect_len,
            ai_connect, ai_next }
        rdma_cm_join_mc_attr_ex { comp_mask, join_flags, addr }
    }
}

macro_rules! constants {
    ($($name:ident)*) => { vec![$((stringify!($name), i128::from($name))),*] };
}

fn all_constants() -> Vec<(&'static str, i128)> {
    constants! {
        RDMA_CM_EVENT_ADDR_RESOLVED RDMA_CM_EVENT_ADDR_ERROR RDMA_CM_EVENT_ROUTE_RESOLVED
        RDMA_CM_EVENT_CONNECT_REQUEST RDMA_CM_EVENT_CONNECT_RESPONSE RDMA_CM_EVENT_CONNECT_ERROR
        RDMA_CM_EVENT_UNREACHABLE RDMA_CM_EVENT_REJECTED RDMA_CM_EVENT_ESTABLISHED RDMA_CM_EVENT_DISCONNECTED
        RDMA_CM_EVENT_MULTICAST_JOIN RDMA_CM_EVENT_TIMEWAIT_EXIT RDMA_PS_IPOIB RDMA_PS_TCP RDMA_PS_UDP
        RDMA_PS_IB RDMA_UDP_QKEY RDMA_MAX_RESP_RES RDMA_MAX_INIT_DEPTH RAI_PASSIVE RAI_NUMERICHOST RAI_FAMILY
        RDMA_CM_JOIN_MC_ATTR_ADDRESS RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER
        RDMA_OPTION_ID RDMA_OPTION_IB RDMA_OPTION_ID_TOS RDMA_OPTION_ID_REUSEADDR RDMA_OPTION_ID_AFONLY
        RDMA_OPTION_ID_ACK_TIMEOUT
    }
}

/// The union has no name of its own in C: its members begin where `rdma_cm_event.param` does.
const WITHOUT_NAME: [&str; 1] = ["rdma_cm_event_param"];

#[test]
fn everything_of_ours_is_compared() {
    let (structures, constants) = (all(), all_constants());
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/rdma_cma.rs");
    let text = std::fs::read_to_string(module).expect("the module is a file");
    let mut current = None;
    let mut compared = 0;
    for line in text.lines() {
        let words: Vec<&str> = line
            .split([' ', ':', '{'])
            .filter(|word| !word.is_empty())
            .collect();
        match words[..] {
            ["pub", "const", name, ..] => {
                let known = constants.iter().any(|(known, _)| *known == name);
                assert!(known, "{name} is not in the list");
            }
            ["pub", "struct" | "union", name, ..] => {
                current = structures.iter().find(|(known, ..)| *known == name);
                assert!(
                    current.is_some() || WITHOUT_NAME.contains(&name),
                    "{name} is not in the list"
                );
            }
            ["pub", member, ..] if line.starts_with("    pub ") => {
                let Some((name, _, members)) = current else {
                    continue;
                };
                let known = members.iter().any(|(known, _)| *known == member);
                assert!(known, "{name}.{member} is not in the list");
                compared += 1;
            }
            _ => {}
        }
    }
    assert!(compared > 70, "{compared} members were found");
}

#[test]
fn structures_and_constants_are_those_of_the_header() {
    if missing("/usr/include/rdma/rdma_cma.h") {
        return;
    }
    let mut source = String::from(
        "#include <rdma/rdma_cma.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void)\n{\n",
    );
    let mut expected = String::new();
    // Writing to a string does not fail.
    for (name, size, members) in all() {
        let _ = writeln!(source, "printf(\"{name} %zu\\n\", sizeof(struct {name}));");
        let _ = writeln!(expected, "{name} {size}");
        for (member, offset) in members {
            let _ = writeln!(
                source,
                "printf(\"{name}.{member} %zu\\n\", offsetof(struct {name}, {member}));"
            );
            let _ = writeln!(expected, "{name}.{member} {offset}");
        }
    }
    for (name, value) in all_constants() {
        let _ = writeln!(source, "printf(\"{name} %lld\\n\", (long long){name});");
        let _ = writeln!(expected, "{name} {value}");
    }
    source += "return 0;\n}\n";
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let (file, program) = (folder.path().join("layout.c"), folder.path().join("layout"));
    std::fs::write(&file, source).expect("a file can be written");
    let compiled = Command::new("cc").arg("-o").arg(&program).arg(&file).output();
    succeeded(&compiled.expect("cc runs"), "cc");
    let printed = succeeded(&Command::new(&program).output().expect("it runs"), "the program");
    assert_eq!(printed, expected);
}
