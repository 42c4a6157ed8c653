//! Ids of users and groups that a call names, as the initial user name space has them.

use ioreel_traces::{rows::Op, text::to_bytes};

use crate::Call;

/// Whose ids a call names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdsOf {
    /// Those of its thread's user name space, whichever that is.
    #[default]
    Thread,
    /// Those of the initial user name space.
    Initial,
    /// Those of another one, and what they are in the initial one is unknown.
    Unknown,
}

/// -1 in a call: unchanged.
fn is_unchanged(id: i64) -> bool {
    id as u32 == u32::MAX
}

/// The name space whose ids a row names. For a translated row of chown, also user and group.
pub(crate) fn of_row(call: Call, op: &Op) -> (IdsOf, Option<(i64, i64)>) {
    if call == Call::Setgroups {
        return (if op.aux2 == Some(1) { IdsOf::Initial } else { IdsOf::Thread }, None);
    }
    let Some(value) = op.value.as_ref().filter(|_| call.chowns() || call.sets_user()) else {
        return (IdsOf::Thread, None);
    };
    let value = to_bytes(value);
    if call.sets_user() {
        return (if credentials(&value).is_some() { IdsOf::Initial } else { IdsOf::Unknown }, None);
    }
    let given = [op.aux.unwrap_or(-1), op.aux2.unwrap_or(-1)];
    match numbers(&value)[..] {
        [uid, gid] if is_unchanged(uid) == is_unchanged(given[0]) && is_unchanged(gid) == is_unchanged(given[1]) => {
            (IdsOf::Initial, Some((uid, gid)))
        }
        _ => (IdsOf::Unknown, None),
    }
}

/// Decimal numbers separated by commas; empty if they are not.
fn numbers(value: &[u8]) -> Vec<i64> {
    let text = std::str::from_utf8(value).unwrap_or_default();
    text.split(',').map(str::parse).collect::<Result<_, _>>().unwrap_or_default()
}

/// Column `value` of a change of user: real, effective, saved and file system user id, the group ids likewise, and the
/// effective capabilities.
pub(crate) fn credentials(value: &[u8]) -> Option<([u32; 8], i64)> {
    let comma = value.iter().rposition(|b| *b == b',')?;
    let ids: Vec<u32> = numbers(&value[..comma]).into_iter().map(|id| id as u32).collect();
    let bits = std::str::from_utf8(&value[comma + 1..]).ok()?.strip_prefix("0x")?;
    Some((ids.try_into().ok()?, u64::from_str_radix(bits, 16).ok()? as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chown(aux: i64, aux2: i64, value: Option<&str>) -> (IdsOf, Option<(i64, i64)>) {
        let op = Op { aux: Some(aux), aux2: Some(aux2), value: value.map(Into::into), ..Op::default() };
        of_row(Call::Fchownat, &op)
    }

    #[test]
    fn an_owner_is_translated_if_all_its_ids_are() {
        assert_eq!(chown(1, 2, None), (IdsOf::Thread, None));
        assert_eq!(chown(1, 2, Some("100001,100002")), (IdsOf::Initial, Some((100_001, 100_002))));
        assert_eq!(chown(1, -1, Some("100001,-1")), (IdsOf::Initial, Some((100_001, -1))));
        for value in ["-1,100002", "100001", "7f7f", "", "1,2,3"] {
            assert_eq!(chown(1, 2, Some(value)), (IdsOf::Unknown, None), "{value}");
        }
    }

    #[test]
    fn a_change_of_user_says_all_ids_that_follow() {
        assert_eq!(credentials(b"1,2,3,4,5,6,7,-2,0x1f"), Some(([1, 2, 3, 4, 5, 6, 7, u32::MAX - 1], 0x1f)));
        assert_eq!(credentials(b"1,2,3,4,5,6,7,8,0xffffffffffffffff").unwrap_or_default().1, -1);
        for value in [&b""[..], b"1,2,3,4,5,6,7,8", b"1,2,0x1", b"1,2,3,4,5,6,7,x,0x1", b"\xff,0x1"] {
            assert_eq!(credentials(value), None);
        }
    }
}
