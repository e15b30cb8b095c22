//! The names of libibverbs and librdmacm are aliases in the documentation's search: a programmer who knows verbs finds
//! by them what does the same here.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The names that must be found, by the header that has them.
const VERBS: &str = "
    ibv_get_device_list ibv_get_device_name ibv_device ibv_open_device ibv_close_device ibv_context
    ibv_query_port ibv_port_state IBV_PORT_ACTIVE IBV_PORT_DOWN ibv_transport_type IBV_TRANSPORT_IB IBV_TRANSPORT_IWARP
    ibv_gid ibv_query_gid ibv_query_gid_ex ibv_query_gid_table ibv_gid_entry
    ibv_get_async_event ibv_async_event ibv_event_type IBV_EVENT_CQ_ERR IBV_EVENT_QP_FATAL IBV_EVENT_QP_REQ_ERR
    IBV_EVENT_QP_ACCESS_ERR IBV_EVENT_QP_LAST_WQE_REACHED IBV_EVENT_SQ_DRAINED IBV_EVENT_SRQ_LIMIT_REACHED
    IBV_EVENT_COMM_EST IBV_EVENT_DEVICE_FATAL
    ibv_pd ibv_alloc_pd ibv_dealloc_pd
    ibv_mr ibv_reg_mr ibv_dereg_mr ibv_mw ibv_alloc_mw ibv_dealloc_mw ibv_bind_mw IBV_WR_BIND_MW IBV_WR_LOCAL_INV
    ibv_sge sg_list remote_addr
    ibv_access_flags IBV_ACCESS_LOCAL_WRITE IBV_ACCESS_REMOTE_WRITE IBV_ACCESS_REMOTE_READ IBV_ACCESS_REMOTE_ATOMIC
    IBV_ACCESS_MW_BIND IBV_ACCESS_ZERO_BASED
    ibv_cq ibv_create_cq ibv_destroy_cq ibv_poll_cq ibv_req_notify_cq
    ibv_comp_channel ibv_create_comp_channel ibv_get_cq_event ibv_ack_cq_events
    ibv_wc wr_id qp_num imm_data src_qp IBV_WC_WITH_IMM IBV_WC_WITH_INV invalidated_rkey IBV_WC_GRH
    ibv_wc_opcode IBV_WC_SEND IBV_WC_RDMA_WRITE IBV_WC_RDMA_READ IBV_WC_COMP_SWAP IBV_WC_FETCH_ADD IBV_WC_BIND_MW
    IBV_WC_LOCAL_INV IBV_WC_RECV IBV_WC_RECV_RDMA_WITH_IMM
    ibv_wc_status IBV_WC_SUCCESS IBV_WC_LOC_LEN_ERR IBV_WC_LOC_QP_OP_ERR IBV_WC_LOC_PROT_ERR IBV_WC_WR_FLUSH_ERR
    IBV_WC_MW_BIND_ERR IBV_WC_BAD_RESP_ERR IBV_WC_REM_INV_REQ_ERR IBV_WC_REM_ACCESS_ERR IBV_WC_REM_OP_ERR
    IBV_WC_RETRY_EXC_ERR IBV_WC_RNR_RETRY_EXC_ERR ibv_wc_status_str vendor_err
    ibv_qp ibv_create_qp ibv_destroy_qp ibv_modify_qp ibv_modify_qp_rate_limit IBV_QP_RATE_LIMIT ibv_query_qp ibv_qp_init_attr ibv_qp_attr ibv_qp_cap recv_cq
    ibv_qp_type IBV_QPT_RC IBV_QPT_UC IBV_QPT_UD IBV_QPT_XRC_SEND IBV_QPT_XRC_RECV ibv_create_qp_ex
    ibv_xrcd ibv_open_xrcd ibv_close_xrcd ibv_create_srq_ex ibv_get_srq_num ibv_wr_set_xrc_srqn
    ibv_qp_state IBV_QPS_RESET IBV_QPS_INIT IBV_QPS_RTR IBV_QPS_RTS IBV_QPS_SQD IBV_QPS_SQE IBV_QPS_ERR
    ibv_mtu IBV_MTU_256 IBV_MTU_512 IBV_MTU_1024 IBV_MTU_2048 IBV_MTU_4096
    path_mtu qp_access_flags retry_cnt rnr_retry min_rnr_timer max_rd_atomic max_dest_rd_atomic sgid_index
    ibv_post_send ibv_post_recv ibv_send_wr bad_wr byte_len ibv_wr_start ibv_wr_complete
    IBV_WR_SEND IBV_SEND_INLINE IBV_WR_SEND_WITH_IMM IBV_WR_SEND_WITH_INV IBV_WR_ATOMIC_WRITE IBV_WR_RDMA_WRITE IBV_WR_RDMA_WRITE_WITH_IMM
    IBV_WR_RDMA_READ IBV_WR_ATOMIC_FETCH_AND_ADD IBV_WR_ATOMIC_CMP_AND_SWP
    ibv_srq ibv_create_srq ibv_destroy_srq ibv_modify_srq ibv_post_srq_recv
    ibv_ah ibv_create_ah ibv_create_ah_from_wc ibv_init_ah_from_wc ibv_attach_mcast ibv_detach_mcast";

const RDMA_CM: &str = "
    rdma_get_devices rdma_cm_id rdma_create_id rdma_destroy_id rdma_create_qp rdma_conn_param rdma_ud_param
    initiator_depth responder_resources retry_count rnr_retry_count
    rdma_bind_addr rdma_listen rdma_get_request rdma_get_cm_event rdma_accept rdma_reject
    rdma_resolve_addr rdma_resolve_route rdma_connect rdma_disconnect
    rdma_get_local_addr rdma_get_peer_addr rdma_get_src_port rdma_join_multicast rdma_leave_multicast
    RDMA_PS_TCP RDMA_PS_UDP
    RDMA_CM_EVENT_CONNECT_REQUEST RDMA_CM_EVENT_CONNECT_RESPONSE RDMA_CM_EVENT_ESTABLISHED RDMA_CM_EVENT_REJECTED
    RDMA_CM_EVENT_UNREACHABLE RDMA_CM_EVENT_ADDR_ERROR RDMA_CM_EVENT_ROUTE_ERROR RDMA_CM_EVENT_DISCONNECTED";

#[test]
fn every_name_of_verbs_that_has_a_counterpart_leads_to_it() {
    let listed: BTreeSet<&str> = [VERBS, RDMA_CM]
        .iter()
        .flat_map(|names| names.split_whitespace())
        .collect();
    let source = source(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    let found = aliases(&source);
    let lost: Vec<_> = listed.difference(&found).collect();
    assert!(lost.is_empty(), "no alias any more: {lost:?}");
    let unlisted: Vec<_> = found.difference(&listed).collect();
    assert!(unlisted.is_empty(), "not in the list of this test: {unlisted:?}");
}

/// A misspelt alias would never be searched for. The judge are the headers, where they are installed.
#[test]
fn every_alias_is_spelt_as_in_the_headers() {
    let folder = Path::new("/usr/include");
    for (names, headers) in [
        (VERBS, &["infiniband/verbs.h"][..]),
        (RDMA_CM, &["rdma/rdma_cma.h", "rdma/rdma_verbs.h"][..]),
    ] {
        let texts: Result<Vec<String>, _> = headers
            .iter()
            .map(|header| std::fs::read_to_string(folder.join(header)))
            .collect();
        let Ok(texts) = texts else {
            eprintln!("not installed: {headers:?}");
            continue;
        };
        let known: BTreeSet<&str> = texts
            .iter()
            .flat_map(|text| text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'))
            .collect();
        let unknown: Vec<&str> = names
            .split_whitespace()
            .filter(|name| !known.contains(name))
            .collect();
        assert!(unknown.is_empty(), "not in {headers:?}: {unknown:?}");
    }
}

/// All of the crate's source.
fn source(folder: &Path) -> String {
    let mut text = String::new();
    let entries = std::fs::read_dir(folder).expect("the crate's source is there");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    paths.sort();
    for path in paths {
        match path.is_dir() {
            true => text += &source(&path),
            false => text += &std::fs::read_to_string(&path).expect("readable text"),
        }
    }
    text
}

/// What stands in quotes in attributes like `#[doc(alias = "…")]` and `#[doc(alias("…", "…"))]`.
fn aliases(source: &str) -> BTreeSet<&str> {
    source
        .split("#[doc(alias")
        .skip(1)
        .filter_map(|rest| rest.split(")]").next())
        .flat_map(|attribute| attribute.split('"').skip(1).step_by(2))
        .collect()
}
