//! The trace context of a launch, by the recommendation W3C Trace Context: the identity of the span that launched a
//! message.
//!
//! It is stored in the cooperation context under the names of its two headers, each as a text, so that a program that reads
//! or launches by SQL can hand the context to its propagator.

use std::fmt::{self, Write as _};

use crate::Context;

/// The key of the header with the ids.
const TRACEPARENT: &str = "traceparent";

/// The key of the header with the data of vendors.
const TRACESTATE: &str = "tracestate";

/// The length of a `traceparent` of version 00.
const TRACEPARENT_BYTES: usize = 55;

/// The maximum length of a `tracestate`. The recommendation asks for at least this one.
const TRACESTATE_BYTES_MAX: usize = 512;

const TRACESTATE_ENTRIES_MAX: usize = 32;

/// The known flags: sampled, and random trace id.
const FLAGS_KNOWN: u8 = 0b11;

const SAMPLED: u8 = 0b01;

/// The identity of a span in a distributed trace: the headers `traceparent` and `tracestate` of [W3C Trace
/// Context](https://www.w3.org/TR/trace-context/).
///
/// A message has the trace context of the span that launched it, as an element of the [context](crate::Context), so a
/// trace continues across messages, processes and services. Programs without a tracer pass it on.
///
/// ```
/// # extern crate scoop_core as scoop;
/// use scoop::TraceContext;
///
/// let header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// let trace = TraceContext::from_headers(header, Some("vendor=7"))?;
/// assert!(trace.is_sampled());
/// assert_eq!(trace.traceparent(), header);
/// assert_eq!(trace.tracestate(), Some("vendor=7"));
/// assert!(TraceContext::from_headers("00-4bf9-00f0-01", None).is_err());
/// # Ok::<(), scoop::BadTraceparent>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct TraceContext {
    trace_id: [u8; 16],
    span_id: [u8; 8],
    flags: u8,
    /// Valid, and empty if there is none.
    state: String,
}

/// The error of a `traceparent` that has another form than the recommendation prescribes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a traceparent of W3C Trace Context: {why}")]
pub struct BadTraceparent {
    why: &'static str,
}

const fn bad(why: &'static str) -> BadTraceparent {
    BadTraceparent { why }
}

impl TraceContext {
    /// The trace context with these ids. Unknown flags are dropped.
    ///
    /// # Errors
    ///
    /// If one of the ids is zero, which stands for no trace.
    pub fn new(trace_id: [u8; 16], span_id: [u8; 8], flags: u8) -> Result<Self, BadTraceparent> {
        if trace_id == [0; 16] {
            return Err(bad("the trace id is zero"));
        }
        if span_id == [0; 8] {
            return Err(bad("the parent id is zero"));
        }
        Ok(Self { trace_id, span_id, flags: flags & FLAGS_KNOWN, state: String::new() })
    }

    /// Parses the headers. A malformed `tracestate` is dropped: the ids are valid without it.
    ///
    /// # Errors
    ///
    /// If the `traceparent` is malformed. A later version than 00 is read as far as it agrees with that one.
    pub fn from_headers(traceparent: &str, tracestate: Option<&str>) -> Result<Self, BadTraceparent> {
        let trace = Self::parse(traceparent)?;
        Ok(tracestate.into_iter().fold(trace, Self::with_state))
    }

    fn parse(text: &str) -> Result<Self, BadTraceparent> {
        let text = text.trim_matches([' ', '\t']);
        let Some((head, rest)) = text.split_at_checked(TRACEPARENT_BYTES) else {
            return Err(bad("it is too short"));
        };
        let mut fields = head.split('-');
        let mut field = || fields.next().unwrap_or_default();
        let version =
            hex::<1>(field()).ok_or(bad("the version is not 2 hexadecimal digits in lower case"))?;
        let trace_id = hex(field()).ok_or(bad("the trace id is not 32 hexadecimal digits in lower case"))?;
        let span_id = hex(field()).ok_or(bad("the parent id is not 16 hexadecimal digits in lower case"))?;
        let flags = hex::<1>(field()).ok_or(bad("the flags are not 2 hexadecimal digits in lower case"))?;
        match version {
            [0xff] => return Err(bad("the version ff is forbidden")),
            [0] if !rest.is_empty() => return Err(bad("it is too long")),
            _ if !rest.is_empty() && !rest.starts_with('-') => return Err(bad("the flags are too long")),
            _ => {}
        }
        Self::new(trace_id, span_id, flags[0])
    }

    /// The same with this `tracestate`. A malformed one, or one of more than 512 bytes, is dropped.
    #[must_use]
    pub fn with_state(mut self, tracestate: &str) -> Self {
        self.state.clear();
        if is_tracestate(tracestate) {
            self.state.push_str(tracestate.trim_matches([' ', '\t']));
        }
        self
    }

    /// The id of the trace, which is not zero.
    pub fn trace_id(&self) -> [u8; 16] {
        self.trace_id
    }

    /// The id of the span, which is not zero: the parent of the spans that follow.
    pub fn span_id(&self) -> [u8; 8] {
        self.span_id
    }

    /// The flags: bit 0 is whether the trace is sampled, bit 1 whether its id is random.
    pub fn flags(&self) -> u8 {
        self.flags
    }

    /// Whether the caller may have recorded the trace.
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// The header `traceparent`, in version 00.
    pub fn traceparent(&self) -> String {
        let mut text = String::with_capacity(TRACEPARENT_BYTES);
        text.push_str("00-");
        push_hex(&mut text, &self.trace_id);
        text.push('-');
        push_hex(&mut text, &self.span_id);
        text.push('-');
        push_hex(&mut text, &[self.flags]);
        text
    }

    /// The header `tracestate`, if there is one.
    pub fn tracestate(&self) -> Option<&str> {
        Some(&*self.state).filter(|state| !state.is_empty())
    }
}

impl fmt::Debug for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TraceContext").field(&self.traceparent()).field(&self.state).finish()
    }
}

impl Context {
    /// The trace context that it has, if there is one. An unreadable `tracestate` is left out.
    ///
    /// # Errors
    ///
    /// If the element `traceparent` is malformed.
    pub fn trace_context(&self) -> Result<Option<TraceContext>, BadTraceparent> {
        if self.raw(TRACEPARENT).is_none() {
            return Ok(None);
        }
        let text = |key| self.read::<String>(key).ok().flatten();
        let traceparent = text(TRACEPARENT).ok_or(bad("it is no text"))?;
        TraceContext::from_headers(&traceparent, text(TRACESTATE).as_deref()).map(Some)
    }

    /// Replaces the trace context.
    pub fn set_trace_context(&mut self, trace: &TraceContext) {
        self.write(TRACEPARENT, &trace.traceparent()).expect("hexadecimal digits can be stored");
        match &trace.state {
            state if state.is_empty() => drop(self.remove(TRACESTATE)),
            state => self.write(TRACESTATE, state).expect("printable characters can be stored"),
        }
    }
}

/// The bytes that so many digits in lower case stand for.
fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = digit(digits[0])? << 4 | digit(digits[1])?;
    }
    Some(bytes)
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        write!(text, "{byte:02x}").expect("a string takes every write");
    }
}

/// Whether the text is a list of entries `key=value`, with blanks around the commas, and not all of them empty.
fn is_tracestate(text: &str) -> bool {
    let entries = || text.split(',').map(|entry| entry.trim_matches([' ', '\t']));
    let filled = || entries().filter(|entry| !entry.is_empty());
    text.len() <= TRACESTATE_BYTES_MAX
        && (1..=TRACESTATE_ENTRIES_MAX).contains(&filled().count())
        && filled()
            .all(|entry| entry.split_once('=').is_some_and(|(key, value)| is_key(key) && is_value(value)))
}

fn is_key(key: &str) -> bool {
    let is_first = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_other = |c: u8| is_first(c) || b"_-*/@".contains(&c);
    key.len() <= 256 && key.bytes().next().is_some_and(is_first) && key.bytes().all(is_other)
}

fn is_value(value: &str) -> bool {
    let is_char = |c: u8| (b' '..=b'~').contains(&c) && c != b',' && c != b'=';
    (1..=256).contains(&value.len()) && value.bytes().all(is_char)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn context(json: &str) -> Context {
        serde_json::from_str(json).expect("a JSON object is a context")
    }

    #[test]
    fn header_is_read_and_written_verbatim() {
        let trace = TraceContext::from_headers(HEADER, None).unwrap();
        assert_eq!(trace.trace_id()[..2], [0x4b, 0xf9]);
        assert_eq!(trace.span_id()[6..], [0x02, 0xb7]);
        assert_eq!((trace.flags(), trace.tracestate()), (1, None));
        assert_eq!(trace.traceparent(), HEADER);
        let unsampled = TraceContext::from_headers(&HEADER.replace("-01", "-00"), None).unwrap();
        assert!(!unsampled.is_sampled());
    }

    #[test]
    fn malformed_header_is_refused() {
        let ids = ["4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"];
        for (header, why) in [
            (String::new(), "too short"),
            (HEADER[1..].to_owned(), "too short"),
            (format!("{HEADER}-00"), "too long"),
            (HEADER.replace("00-4", "ff-4"), "version ff"),
            (HEADER.replace("00-4", "0x-4"), "version is not"),
            (HEADER.to_uppercase(), "trace id is not"),
            (HEADER.replace(ids[0], &"0".repeat(32)), "trace id is zero"),
            (HEADER.replace(ids[1], &"0".repeat(16)), "parent id is zero"),
            (HEADER.replace("-01", "-0g"), "flags are not"),
            (HEADER.replace("00f0", "00-0"), "parent id is not"),
            (HEADER.replace("4bf9", "ÄÄ"), "trace id is not"),
            (HEADER.replace("00-4", "01-4") + "x", "flags are too long"),
        ] {
            let error = TraceContext::from_headers(&header, None).expect_err(&header).to_string();
            assert!(error.contains(why), "{header}: {error}");
        }
    }

    #[test]
    fn later_version_is_read_as_far_as_it_is_known() {
        let later = format!("{}-what-else", HEADER.replace("00-4", "cc-4").replace("-01", "-ff"));
        let trace = TraceContext::from_headers(&later, None).unwrap();
        assert_eq!(trace.traceparent(), HEADER.replace("-01", "-03"));
    }

    #[test]
    fn malformed_tracestate_is_dropped() {
        let of = |state: &str| {
            TraceContext::from_headers(HEADER, Some(state)).unwrap().tracestate().map(str::to_owned)
        };
        let full = (0..32).map(|n| format!("k{n}=v")).collect::<Vec<_>>().join(",");
        for kept in ["a=1", "a=1, b@c=x y", "a=1,,b=2", "0-_*/@=!~", &full] {
            assert_eq!(of(kept).as_deref(), Some(kept));
        }
        let long = format!("a={}", "x".repeat(257));
        let large = ["a", "b", "c"].map(|key| format!("{key}={}", "x".repeat(200))).join(",");
        for dropped in [
            "",
            ",",
            "a",
            "a=",
            "=1",
            "A=1",
            "a=1=2",
            "a=\u{1}",
            "a=ä",
            &long,
            &large,
            &(full.clone() + ",z=1"),
        ] {
            assert_eq!(of(dropped), None, "{dropped}");
        }
    }

    #[test]
    fn elements_of_the_context_are_the_headers() {
        let mut stored = Context::default();
        let trace = TraceContext::from_headers(HEADER, Some("a=1")).unwrap();
        stored.set_trace_context(&trace);
        let json = serde_json::to_string(&stored).unwrap();
        assert_eq!(json, format!(r#"{{"traceparent":"{HEADER}","tracestate":"a=1"}}"#));
        assert_eq!(stored.trace_context(), Ok(Some(trace)));
        stored.set_trace_context(&TraceContext::from_headers(HEADER, None).unwrap());
        assert_eq!(stored.raw("tracestate"), None, "it belongs to the former one");
        assert_eq!(Context::default().trace_context(), Ok(None));
    }

    #[test]
    fn forged_elements_are_errors_or_left_out() {
        for forged in ["7", "null", "[]", r#""""#, r#""00-00-00-00""#, r#""\u0030""#] {
            assert!(context(&format!(r#"{{"traceparent":{forged}}}"#)).trace_context().is_err(), "{forged}");
        }
        let of_state = context(&format!(r#"{{"traceparent":"{HEADER}","tracestate":{{}}}}"#)).trace_context();
        assert_eq!(of_state.unwrap().unwrap().tracestate(), None);
        assert_eq!(context(r#"{"tracestate":"a=1"}"#).trace_context(), Ok(None));
    }
}
