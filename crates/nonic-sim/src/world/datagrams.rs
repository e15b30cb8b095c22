//! Plans the datagrams: between queue pairs, to a group, and with a wrong Q_Key now and then.

use super::ops::{GRH_LEN, MAX_INLINE, MAX_SGE};
use super::plan::Plan;
use crate::program::content::{Pieces, draw_content};
use crate::program::model::Receive;
use crate::program::request::{Bad, Expect, Kind, Op, Source, Target};
use nonic_core::{SendFlags, Status};
use nonic_netem::Prng;

/// Plans datagrams between `members`.
pub(super) fn plan_datagrams(plan: &mut Plan, members: &[usize], prng: &mut Prng) {
    let longest = prng.pick(&[64, 256, 1024, 4096]);
    let grouped = prng.percent(40);
    for qp in members {
        plan.qps[*qp].in_group = grouped && prng.percent(70);
        let count = prng.range(1, 16);
        for _ in 0..count {
            plan_datagram(plan, *qp, members, (longest, grouped), prng);
        }
    }
    for qp in members {
        let incoming: usize = members
            .iter()
            .flat_map(|sender| &plan.model.programs[*sender].ops)
            .filter(|op| match op.kind {
                Kind::Datagram { to, .. } => to == Target::Group || to == Target::Qp(*qp),
                _ => false,
            })
            .count();
        let short_at = (prng.below(100) < 3).then(|| prng.index(incoming + 1));
        for index in 0..incoming + 1 {
            let short = short_at == Some(index);
            let room = if short {
                prng.below(u64::from(GRH_LEN)) as u32
            } else {
                GRH_LEN + longest
            };
            if let Some(srq) = plan.model.programs[*qp].srq {
                plan.model.srqs[srq]
                    .receives
                    .push(Receive::new(Pieces::one(0, GRH_LEN + longest)));
            } else {
                let arena = plan.model.programs[*qp].arena;
                let buffer = plan.model.arenas[arena].allocate_pieces(room, MAX_SGE, prng);
                plan.model.programs[*qp].receives.push(Receive {
                    short,
                    ..Receive::new(buffer)
                });
            }
        }
    }
}

fn plan_datagram(plan: &mut Plan, qp: usize, members: &[usize], style: (u32, bool), prng: &mut Prng) {
    let (longest, grouped) = style;
    let to = if grouped && prng.percent(40) {
        Target::Group
    } else {
        Target::Qp(prng.pick(members))
    };
    let length = match prng.below(4) {
        0 => prng.below(9) as u32,
        1 => longest,
        _ => prng.below(u64::from(longest) + 1) as u32,
    };
    let mut flags = SendFlags::empty();
    if prng.percent(70) {
        flags |= SendFlags::SIGNALED;
    }
    if prng.percent(20) {
        flags |= SendFlags::SOLICITED;
    }
    let bad = prng.below(100) < 2;
    let kind = if bad {
        Kind::Bad(Bad::LocalUnknownKey)
    } else {
        Kind::Datagram {
            to,
            immediate: prng.percent(30).then(|| prng.next_u32()),
            wrong_qkey: prng.percent(6),
        }
    };
    let length = if bad { length.max(1) } else { length };
    let content = draw_content(length, MAX_SGE, prng);
    let source = if length <= MAX_INLINE && !bad && prng.percent(20) {
        Source::Inline(content)
    } else {
        Source::Pool(content)
    };
    let expect = if bad {
        Expect::Local(Status::LocalProtection)
    } else {
        Expect::Success
    };
    plan.model.programs[qp]
        .ops
        .push(Op::new(kind, length, source, flags, expect));
}
