//! Small kernels, right and wrong: own region at parameter byte 0, table of peers at 8.

use super::{Protocol, Roots, wrong, wrong_in_place};

/// What stands before each: `%own`, a peer's `%peer`, `%lead` where this thread is not the leader.
const HEAD: &str = "
	ld.param.b64 %own, [k_param_0];
	ld.param.b64 %table, [k_param_0+8];
	mov.u32 %tid, %tid.x;
	setp.ne.b32 %lead, %tid, 0;
	griddepcontrol.wait;
	ld.b64 %peer, [%table+8];
	add.s64 %out, %peer, 4096;
";

const STORE: &str = "{ .reg .b64 g; cvta.to.global.u64 g, %out; st.global.v4.b32 [g], {%a, %b, %c, %d}; }\n";
const TAKE: &str = "{ .reg .b64 g; cvta.to.global.u64 g, %own; ld.global.v4.b32 {%a, %b, %c, %d}, [g]; }\n";
const LINE: &str =
    "{ .reg .b64 g; cvta.to.global.u64 g, %out; st.relaxed.sys.global.v4.b32 [g], {%a, %b, %c, %d}; }\n";
const LOOK: &str = "{ .reg .b32 a; mov.u32 a, fusewire_panic; ld.volatile.shared.b64 %gone, [a]; }\n";
const WAIT: &str =
    "$L_wait:\nld.acquire.sys.b64 %seen, [%own+128];\nsetp.lt.s64 %p, %seen, 5;\n@%p bra $L_wait;\n";
const BARRIER: &str = "bar.sync 0;\n";
const FENCE: &str = "fence.acq_rel.sys;\n";
const READY: &str = "st.release.sys.b64 [%peer], %seen;\n";
const FREE: &str = "st.relaxed.sys.b64 [%peer+128], %seen;\n";

fn entry(code: &[&str]) -> String {
    format!(
        ".func (.param .b32 r) gone\n(\n)\n.noreturn;\n.visible .entry k(\n\t.param .align 8 .b8 k_param_0[64]\n)\n{{\n{HEAD}{}\n\tret;\n}}\n",
        code.concat()
    )
}

fn roots() -> Roots {
    Roots { own: vec![0], tables: vec![8] }
}

fn found(protocol: Protocol, code: &[&str]) -> Vec<String> {
    wrong(&entry(code), "k", protocol, &roots(), &[208_896])
}

fn right(protocol: Protocol, code: &[&str]) {
    assert_eq!(found(protocol, code), [""; 0]);
}

#[track_caller]
fn bad(protocol: Protocol, code: &[&str], why: &str) {
    let found = found(protocol, code);
    assert!(found.len() == 1 && found[0].contains(why), "{why}: {found:?}");
}

use Protocol::{Bulk, Direct, Ll, Ll128, Posted, Simple};

#[test]
fn staged_stores_are_released() {
    right(Simple, &[WAIT, BARRIER, STORE, BARRIER, LOOK, READY]);
    bad(Simple, &[WAIT, BARRIER, STORE, LOOK, READY], "without a barrier");
    bad(Simple, &[WAIT, STORE, BARRIER, STORE, LOOK, READY], "without a barrier");
    bad(Simple, &[WAIT, STORE, BARRIER, LOOK, FREE], "without a system-scope release");
    bad(
        Simple,
        &[WAIT, STORE, BARRIER, "st.release.gpu.b64 [%peer], %seen;\n", LOOK, READY],
        "no peer is in",
    );
    bad(Simple, &[WAIT, STORE, BARRIER, READY], "whether a thread has panicked");
}

#[test]
fn direct_stores_are_fenced() {
    right(Direct, &[WAIT, BARRIER, STORE, BARRIER, LOOK, FENCE, FREE]);
    bad(Direct, &[WAIT, STORE, BARRIER, LOOK, FREE], "without a system-scope release");
    // Before the barrier it is of this thread's stores alone.
    bad(Direct, &[WAIT, STORE, FENCE, BARRIER, LOOK, FREE], "without a system-scope release");
    bad(
        Direct,
        &[WAIT, STORE, BARRIER, LOOK, "fence.acq_rel.gpu;\n", FREE],
        "without a system-scope release",
    );
}

#[test]
fn one_path_is_enough() {
    let skips = ["@%lead bra $L_past;\n", FENCE, "$L_past:\n"].concat();
    bad(Direct, &[WAIT, STORE, BARRIER, LOOK, &skips, FREE], "without a system-scope release");
    // Who skips the fence skips the flag.
    right(Direct, &[WAIT, STORE, BARRIER, LOOK, &skips, "@%lead bra $L_end;\n", FREE, "$L_end:\n"]);
    // Nor does a function that never returns.
    let ends = ["@!%lead bra $L_past;\n", "\t{\ncall.uni (r), gone, ();\n\t}\n", "$L_past:\n"].concat();
    right(Direct, &[WAIT, STORE, BARRIER, LOOK, &ends, FENCE, FREE]);
}

#[test]
fn constants_are_remembered() {
    let first = "mov.b64 %from, 0;\n$L_turn:\nsetp.eq.b64 %none, %from, 0;\n@%none bra $L_store;\n";
    let again = "$L_store:\n";
    let turn = "add.s64 %from, %from, 128;\nsetp.lt.s64 %more, %from, %own;\n@%more bra $L_turn;\n";
    right(
        Simple,
        &[WAIT, STORE, first, &WAIT.replace("$L_wait", "$L_room"), LOOK, READY, again, BARRIER, turn],
    );
}

#[test]
fn a_branch_tells_of_what_its_predicate_was_made_from() {
    let fault = "not.pred %fine, %odd;\n@%fine bra $L_on;\n\t{\ncall.uni my_give_up, (p);\n\t}\n$L_on:\n";
    right(Simple, &[WAIT, STORE, BARRIER, LOOK, fault, "@%odd bra $L_end;\n", READY, "$L_end:\n"]);
    bad(Simple, &[WAIT, STORE, BARRIER, LOOK, fault, "@!%odd bra $L_end;\n", READY, "$L_end:\n"], "a fault");
}

#[test]
fn a_comparison_made_twice_has_one_answer() {
    let thread = "mov.u32 %thread, %tid.x;\n";
    let twice = "setp.ne.b32 %rest, %thread, 0;\nsetp.eq.b32 %first, %thread, 0;\n";
    let flags =
        ["@%rest bra $L_past;\n", READY, "$L_past:\n@!%first bra $L_end;\n", FREE, "$L_end:\n"].concat();
    right(Simple, &[WAIT, thread, twice, STORE, BARRIER, LOOK, &flags]);
    // Of what has another value by then.
    let other = [
        "setp.ne.b32 %rest, %thread, 0;\nadd.s32 %thread, %thread, 1;\n",
        "setp.eq.b32 %first, %thread, 0;\n",
    ]
    .concat();
    bad(Simple, &[WAIT, thread, &other, STORE, BARRIER, LOOK, &flags], "without a system-scope release");
    // The other thread goes by the flag.
    let wrong = twice.replace(".eq", ".ne");
    bad(Simple, &[WAIT, thread, &wrong, STORE, BARRIER, LOOK, &flags], "without a system-scope release");
}

#[test]
fn bulk_copies_are_awaited() {
    let copy =
        "cp.async.bulk.global.shared::cta.bulk_group [%out], [%s], 512;\ncp.async.bulk.commit_group;\n";
    let (all, read) = ("cp.async.bulk.wait_group 0;\n", "cp.async.bulk.wait_group.read 2;\n");
    right(Bulk, &[WAIT, copy, read, copy, all, FENCE, FREE]);
    bad(Bulk, &[WAIT, copy, read, FENCE, FREE], "while a bulk copy is under way");
    bad(Bulk, &[WAIT, copy, all, FREE], "without a system-scope release");
    let load = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%s], [%own], 512, [%m];\n";
    let (init, fence) =
        ("mbarrier.init.shared::cta.b64 [%m], 1;\n", "fence.mbarrier_init.release.cluster;\n");
    right(Bulk, &[WAIT, init, fence, load, copy, all, FENCE, FREE]);
    bad(Bulk, &[WAIT, init, load, copy, all, FENCE, FREE], "before the fence behind its barrier");
}

#[test]
fn nothing_is_touched_before_the_kernel_before_is_done() {
    let body = HEAD.replace("\tgriddepcontrol.wait;\n", "");
    let kernel = |head: &str| {
        let code = [WAIT, STORE, BARRIER, LOOK, READY].concat();
        format!(".visible .entry k(\n\t.param .align 8 .b8 k_param_0[64]\n)\n{{\n{head}{code}\n\tret;\n}}\n")
    };
    let roots = Roots { own: vec![0], tables: vec![8] };
    let found = wrong(&kernel(&body), "k", Simple, &roots, &[]);
    assert!(found.len() == 1 && found[0].contains("before griddepcontrol.wait"), "{found:?}");
    let early = HEAD
        .replace("\tgriddepcontrol.wait;\n", "\tgriddepcontrol.launch_dependents;\n\tgriddepcontrol.wait;\n");
    let found = wrong(&kernel(&early), "k", Simple, &roots, &[]);
    assert!(found.len() == 1 && found[0].contains("dependents are launched before"), "{found:?}");
    assert_eq!(wrong(&kernel(HEAD), "k", Simple, &roots, &[]), [""; 0]);
    assert_eq!(wrong(&kernel(HEAD), "other", Simple, &roots, &[]), ["no `other`"]);
}

#[test]
fn room_is_given_back_behind_a_barrier() {
    right(Simple, &[WAIT, BARRIER, STORE, BARRIER, LOOK, READY, TAKE, BARRIER, LOOK, FREE]);
    bad(Simple, &[WAIT, BARRIER, STORE, BARRIER, LOOK, READY, TAKE, LOOK, FREE], "given back before");
}

#[test]
fn waits_acquire() {
    let weak = WAIT.replace("acquire", "relaxed");
    let found = found(Simple, &[&weak, BARRIER, STORE, BARRIER, LOOK, READY]);
    assert!(found.iter().any(|f| f.contains("does not acquire")), "{found:?}");
}

#[test]
fn loops_wait() {
    let (turn, again) = ("$L_turn:\n", "@%more bra $L_turn;\n");
    let wait = WAIT.replace("$L_wait", "$L_again");
    right(Simple, &[WAIT, BARRIER, turn, &wait, STORE, BARRIER, LOOK, READY, again]);
    bad(Simple, &[WAIT, BARRIER, turn, STORE, BARRIER, LOOK, READY, again], "without a wait");
}

#[test]
fn lines_are_stored_by_whole_warps() {
    let vote = "vote.sync.ballot.b32 %all, %yes, -1;\n";
    let poll = "ld.relaxed.sys.global.v4.b32 {%a, %b, %c, %d}, [%own];\n";
    right(Ll128, &[vote, LINE, LINE, vote, poll]);
    bad(Ll128, &[LINE, vote, poll], "may be in parts");
    bad(Ll128, &[vote, LINE, "ld.b32 %x, [%input];\n", LINE, vote, poll], "may be in parts");
    bad(Ll128, &[vote, LINE, poll, BARRIER, LOOK, STORE], "which no line's flag tells of");
    // The header, which one lane stores.
    let header = ["add.s64 %at, %out, 208896;\n", &LINE.replace("%out", "%at")].concat();
    right(Ll128, &[&header, vote, LINE, poll]);
    bad(Ll128, &[vote, LINE, poll, LOOK, FREE], "given back before");
    bad(Ll128, &[vote, LINE, poll, BARRIER, FREE], "whether a thread has panicked");
    bad(Ll128, &[vote, LINE, BARRIER, LOOK, "ld.b32 %x, [%input];\n", poll], "loaded by a warp");
}

#[test]
fn words_are_taken_when_all_have_met() {
    let put = "st.relaxed.sys.global.v2.b64 [%out], {%a, %b};\n";
    let look = "ld.relaxed.sys.global.v2.b64 {%a, %b}, [%own];\n";
    let wait = ["$L_look:\n", look, "nanosleep.u32 32;\n@%more bra $L_look;\n"].concat();
    let taken = [look, "st.b32 [%input], %x;\n"].concat();
    right(Ll, &[put, &wait, BARRIER, &taken]);
    bad(Ll, &[put, &wait, &taken], "another thread may wait for");
    bad(Ll, &[put, &wait, BARRIER, &taken, BARRIER, LOOK, STORE], "which no word's flag tells of");
    right(Ll, &[put, &wait, BARRIER, &taken, BARRIER, LOOK, FREE]);
    bad(Ll, &[put, &wait, BARRIER, &taken, LOOK, FREE], "given back before");
    bad(Ll, &[put, &wait, BARRIER, &taken, BARRIER, FREE], "whether a thread has panicked");
}

#[test]
fn faults_publish_nothing() {
    let fault = "\t{\ncall.uni my_give_up, (p);\n\t}\n";
    bad(Simple, &[WAIT, BARRIER, STORE, BARRIER, LOOK, fault, READY], "behind a fault");
}

#[test]
fn doorbells_come_last() {
    let (entry, record) =
        ("st.global.v4.b32 [%own], {%a, %b, %c, %d};\n", "st.release.sys.b32 [%own], %a;\n");
    let bell = "st.relaxed.sys.b64 [%own], %seen;\n";
    right(Posted, &[entry, record, FENCE, bell]);
    for wrong in [&[entry, FENCE, record, bell][..], &[entry, record, bell], &[entry, FENCE, bell]] {
        bad(Posted, wrong, "a doorbell without");
    }
}

#[test]
fn a_kernel_that_does_nothing_is_not_right() {
    assert!(found(Simple, &[WAIT]).iter().any(|f| f.contains("stores nothing")));
    assert!(found(Posted, &[WAIT]).iter().any(|f| f.contains("no doorbell")));
}

#[test]
fn in_place_what_arrives_is_stored_behind_what_is_sent() {
    let keep = "ld.param.b64 %values, [k_param_0+16];\n{ .reg .b64 g; cvta.to.global.u64 g, %values; st.global.v4.b32 [g], {%a, %b, %c, %d}; }\n";
    let found = |code: &[&str]| wrong_in_place(&entry(code), "k", &roots());
    assert_eq!(found(&[LINE, BARRIER, keep]), [""; 0]);
    let early = found(&[LINE, keep, BARRIER, LINE]);
    assert!(early.len() == 1 && early[0].contains("another thread may still read"), "{early:?}");
    // One way is enough.
    let skips = ["@%lead bra $L_past;\n", BARRIER, "$L_past:\n"].concat();
    assert_eq!(found(&[LINE, &skips, keep]).len(), 1);
    let nothing = found(&[LINE, BARRIER, LINE]);
    assert!(nothing.len() == 1 && nothing[0].contains("stores nothing"), "{nothing:?}");
}
