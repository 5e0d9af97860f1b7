//! The requester of a form that changes something: its name and reason, which are recorded, and the token against CSRF: the proof
//! that the form is of this page.

use axum::http::HeaderMap;
use axum::http::header::SET_COOKIE;
use axum::response::Response;

use super::Fields;
use crate::Web;
use crate::access::{cookie, set_cookie};
use crate::fault::Fault;
use crate::options::Operator;
use crate::shown::line;

/// The maximum lengths of a name and a reason, in characters.
const NAME_CHARS_MAX: usize = 100;
const REASON_CHARS_MAX: usize = 1_000;

/// The cookie with the name that was entered last, and its lifetime.
const NAME_COOKIE: &str = "scoop-name";
const NAME_SECONDS: u32 = 365 * 24 * 60 * 60;

/// What a form says about its requester.
pub(super) struct Entered {
    pub(super) name: String,
    pub(super) reason: String,
}

/// A field that is wrong.
pub(super) struct Mistake {
    field: &'static str,
    text: String,
}

impl Mistake {
    pub(super) fn new(field: &'static str, text: String) -> Self {
        Self { field, text }
    }
}

/// The fields of a form for its requester, for `requester.html`.
pub(super) struct Signed {
    pub(super) form: String,
    pub(super) name: Name,
    pub(super) reason: String,
    pub(super) needs_reason: bool,
    error: Option<Mistake>,
}

/// The name field of a form.
pub(super) enum Name {
    Asked(String),
    Known(String),
}

impl Entered {
    /// Before the form was filled: with the name that was entered last.
    pub(super) fn before(headers: &HeaderMap) -> Self {
        let stored = cookie(headers, NAME_COOKIE).unwrap_or_default();
        let name = Fields::of(&format!("name={stored}")).last("name").unwrap_or_default().to_owned();
        Self { name, reason: String::new() }
    }

    /// The content of a form, if that is of this page.
    pub(super) fn of(web: &Web, headers: &HeaderMap, fields: &Fields) -> Result<Self, Fault> {
        if !fields.last("form").is_some_and(|form| web.secret.is_form(form)) {
            let why = "The form is of an earlier time. Go back, load the page again, and repeat the request.";
            return Err(Fault::Forbidden(why.into()));
        }
        let field = |name| fields.last(name).unwrap_or_default().to_owned();
        let name = match web.options.operator(headers) {
            Operator::Asked => field("name"),
            Operator::Known(name) => name,
            Operator::Missing => {
                let why = "No name of a user came with the request, and it would be recorded.";
                return Err(Fault::Forbidden(why.into()));
            }
        };
        Ok(Self { name, reason: field("reason") })
    }

    /// What is wrong with it.
    pub(super) fn mistake(&self, needs_reason: bool) -> Option<Mistake> {
        let check = |field, text: &str, chars_max| {
            let count = text.chars().count();
            let wrong = if count == 0 {
                "is missing".to_owned()
            } else if count > chars_max {
                format!("has {count} characters, and {chars_max} are possible")
            } else if text.contains('\0') {
                "has a NUL character".to_owned()
            } else {
                return None;
            };
            Some(Mistake { field, text: format!("The {field} {wrong}.") })
        };
        let reason = || check("reason", &self.reason, REASON_CHARS_MAX).filter(|_| needs_reason);
        check("name", &self.name, NAME_CHARS_MAX).or_else(reason)
    }

    /// The response, after which the browser knows the name.
    pub(super) fn remembered(&self, mut response: Response, base: &str, headers: &HeaderMap) -> Response {
        let name: String = form_urlencoded::byte_serialize(self.name.as_bytes()).collect();
        let name = set_cookie((NAME_COOKIE, &name), base, headers, NAME_SECONDS);
        response.headers_mut().append(SET_COOKIE, name);
        response
    }
}

impl Signed {
    pub(super) fn new(
        web: &Web,
        headers: &HeaderMap,
        entered: Entered,
        error: Option<Mistake>,
        needs_reason: bool,
    ) -> Self {
        let name = match web.options.operator(headers) {
            Operator::Known(name) => Name::Known(line(&name)),
            Operator::Asked | Operator::Missing => Name::Asked(entered.name),
        };
        Self { form: web.secret.form().to_owned(), name, reason: entered.reason, needs_reason, error }
    }

    pub(super) fn name_chars_max(&self) -> usize {
        NAME_CHARS_MAX
    }

    pub(super) fn reason_chars_max(&self) -> usize {
        REASON_CHARS_MAX
    }

    pub(super) fn error(&self) -> Option<&str> {
        self.error.as_ref().map(|mistake| &*mistake.text)
    }

    pub(super) fn is_wrong(&self, field: &str) -> bool {
        self.error.as_ref().is_some_and(|mistake| mistake.field == field)
    }
}
