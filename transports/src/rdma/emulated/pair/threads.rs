//! What the three threads of a pair do.

use super::*;

/// Takes posted requests, gathers their bytes and sends them.
pub(super) fn send(shared: &Shared, mut stream: UnixStream, _: u8) {
    let mut bytes = Vec::new();
    loop {
        let mut state = shared.lock();
        let posted = loop {
            if state.closing || state.broken.is_some() {
                return;
            }
            match state.waiting.front() {
                Some(next) if !(next.fence && state.reads_under_way()) => break state.waiting.pop_front(),
                _ => state = shared.wait(state),
            }
        };
        let Some(posted) = posted else { continue };
        state.sent.push_back((posted.id, posted.into));
        drop(state);
        bytes.clear();
        let gathered = match posted.from {
            None => {
                bytes.extend_from_slice(&posted.inline);
                Ok(())
            }
            Some(from) => {
                shared.table.load(from.lkey, from.address, from.bytes as usize, Right::Local, &mut bytes)
            }
        };
        if gathered.is_err() {
            return fail_locally(shared, posted.id);
        }
        if wire::send(&mut stream, &posted.ask, &bytes).is_err() {
            return shared.break_with(Status::Unreachable);
        }
    }
}

/// Ends the last request, whose own memory is not registered, after those before it.
fn fail_locally(shared: &Shared, id: u64) {
    let mut state = shared.lock();
    while state.sent.front().is_some_and(|(first, _)| *first != id) && state.broken.is_none() {
        state = shared.wait(state);
    }
    state.break_with(Status::LocalAccess);
    drop(state);
    shared.changed.notify_all();
}

/// Reads the answers to own requests.
pub(super) fn take_answers(shared: &Shared, mut stream: UnixStream, _: u8) {
    let mut bytes = Vec::new();
    loop {
        let answer: Answer = match wire::receive(&mut stream) {
            Ok(answer) => answer,
            Err(_) => return shared.break_with(Status::Unreachable),
        };
        let status = Status::from_code(answer.status);
        if answer.bytes > wire::MESSAGE || wire::receive_bytes(&mut stream, answer.bytes, &mut bytes).is_err()
        {
            return shared.break_with(Status::Unreachable);
        }
        let mut state = shared.lock();
        if status != Status::Done {
            state.break_with(status);
        } else if let Some((id, into)) = state.sent.front().copied() {
            let stored = match into {
                Some(into) if bytes.len() == into.bytes as usize => {
                    shared.table.store(into.lkey, into.address, &bytes, Right::Local).is_ok()
                }
                Some(_) => false,
                None => true,
            };
            if stored {
                state.sent.pop_front();
                state.end(id, Status::Done);
            } else {
                state.break_with(Status::LocalAccess);
            }
        }
        drop(state);
        shared.changed.notify_all();
    }
}

/// Carries out the peer's requests.
pub(super) fn serve(shared: &Shared, mut stream: UnixStream, retries: u8) {
    let (mut bytes, mut back) = (Vec::new(), Vec::new());
    let mut late = Late::new(&shared.table, shared.late);
    loop {
        if let Some(patience) = late.patience()
            && !wire::arrives(&stream, patience)
        {
            late.place();
        }
        let ask: Ask = match wire::receive(&mut stream) {
            Ok(ask) => ask,
            Err(_) => {
                // What a peer that is gone was told of still arrives; behind this pair's own end nothing does.
                if !shared.lock().closing {
                    late.place();
                }
                return shared.break_with(Status::Unreachable);
            }
        };
        back.clear();
        let status = if ask.bytes > wire::MESSAGE {
            Status::RemoteRefused
        } else if ask.carries() && wire::receive_bytes(&mut stream, ask.bytes, &mut bytes).is_err() {
            return shared.break_with(Status::Unreachable);
        } else {
            carry_out(shared, &mut late, &ask, &bytes, &mut back, retries)
        };
        if status != Status::Done {
            back.clear();
        }
        match status {
            Status::Done | Status::NotReceived => {}
            // As on an adapter: a request that is not allowed breaks the pair at both ends, at this one before the peer hears of it.
            _ => shared.break_with(Status::Flushed),
        }
        let answer = Answer { status: status.code(), bytes: back.len() as u32 };
        if wire::send(&mut stream, &answer, &back).is_err() {
            return shared.break_with(Status::Unreachable);
        }
    }
}

fn carry_out(
    shared: &Shared,
    late: &mut Late<'_>,
    ask: &Ask,
    bytes: &[u8],
    back: &mut Vec<u8>,
    retries: u8,
) -> Status {
    let table = &shared.table;
    let refused = |_| Status::RemoteAccess;
    if ask.op != wire::WRITE {
        late.place();
    }
    let outcome = match ask.op {
        wire::WRITE => late.write(ask.rkey, ask.address, bytes).map_err(refused),
        wire::WRITE_WITH_NUMBER => table
            .store(ask.rkey, ask.address, bytes, Right::Write)
            .map_err(refused)
            .and_then(|()| receive(shared, Some(ask.number), bytes, retries)),
        wire::READ => {
            table.load(ask.rkey, ask.address, ask.bytes as usize, Right::Read, back).map_err(refused)
        }
        wire::SEND => receive(shared, None, bytes, retries),
        wire::FETCH_ADD | wire::COMPARE_SWAP => {
            let change = |old: u64| match ask.op {
                wire::FETCH_ADD => Some(old.wrapping_add(ask.a)),
                _ => (old == ask.a).then_some(ask.b),
            };
            let old = table.modify(ask.rkey, ask.address, change).map_err(refused);
            old.map(|old| back.extend_from_slice(&old.to_ne_bytes()))
        }
        _ => Err(Status::RemoteRefused),
    };
    outcome.err().unwrap_or(Status::Done)
}

/// Ends the next receive with a message, or with a write's number.
fn receive(shared: &Shared, number: Option<u32>, bytes: &[u8], retries: u8) -> Result<(), Status> {
    let until = Instant::now() + RECEIVER_WAITS * u32::from(retries);
    let mut state = shared.lock();
    let (id, local) = loop {
        if state.closing || state.broken.is_some() {
            return Err(Status::Unreachable);
        }
        if let Some(next) = state.receives.pop_front() {
            break next;
        }
        let left = until.saturating_duration_since(Instant::now());
        state = match retries {
            FOR_EVER => shared.wait(state),
            _ if left.is_zero() => return Err(Status::NotReceived),
            _ => shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
        };
    };
    let message = number.is_none();
    let fits = !message
        || (bytes.len() <= local.bytes as usize
            && shared.table.store(local.lkey, local.address, bytes, Right::Local).is_ok());
    let status = if fits { Status::Done } else { Status::LocalAccess };
    let bytes = bytes.len() as u32;
    state.ended.push(Completion { id, status, receive: true, bytes, immediate: number });
    if fits { Ok(()) } else { Err(Status::RemoteRefused) }
}
