//! Which requests are answered: token, origin of forms, read-only mode. Adds the headers that restrict the browser.
//!
//! CSRF, a form that another site sends in the name of a visitor, is refused twice: here by the origin of the request, and by the
//! token in the form (`secret.rs`, `pages/requester.rs`).

use askama::Template;
use axum::extract::{Form, OriginalUri, Request, State};
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, COOKIE, HOST, LOCATION, ORIGIN, REFERRER_POLICY,
    SET_COOKIE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use crate::fault::Fault;
use crate::pages::{Base, Fields, address, page};
use crate::{SharedWeb, Web, api, assets};

/// Everything is from the page itself, and nothing else is allowed: no scripts or styles within pages, no frames.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The time for which a browser remembers the token.
const SESSION_SECONDS: u32 = 30 * 24 * 60 * 60;

/// The page that asks for the token.
#[derive(Template)]
#[template(path = "login.html")]
struct LoginPage {
    base: String,
    style: String,
    /// Where the visitor goes after it: a path below `base`.
    next: String,
    error: Option<&'static str>,
}

/// Answers the request, or refuses it.
pub(crate) async fn guard(State(web): State<SharedWeb>, mut request: Request, next: Next) -> Response {
    let base = base_of(&request);
    let is_asset = request.uri().path().starts_with("/assets/");
    request.extensions_mut().insert(Base(base.clone()));
    let mut response = match refusal(&web, &base, &request) {
        None => next.run(request).await,
        Some(refusal) => refusal,
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    // Forms of a page without any referrer have no origin, either.
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    if !is_asset {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

/// The path at which the router is mounted, without a `/` at its end.
fn base_of(request: &Request) -> String {
    let original = request.extensions().get::<OriginalUri>();
    let original = original.map_or_else(|| request.uri().path(), |uri| uri.path());
    let own = request.uri().path();
    original.strip_suffix(own).unwrap_or(original).trim_end_matches('/').to_owned()
}

/// Why a token is asked for, or asked for again.
const WRONG_TOKEN: &str = "This token is not valid.";
const NO_TOKEN: &str = "A token is needed, as in `Authorization: Bearer <token>`.";

/// The response to a request that may not be answered.
fn refusal(web: &Web, base: &str, request: &Request) -> Option<Response> {
    let (uri, headers) = (request.uri(), request.headers());
    let is_api = api::is_path(uri.path());
    let refused = |fault: Fault| Some(if is_api { api::refused(&fault) } else { fault.page(base) });
    let ask = |next: &str, error: Option<&'static str>| match is_api {
        true => refused(Fault::Unauthorized(error.unwrap_or(NO_TOKEN))),
        false => Some(ask(base, next, error)),
    };
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    if !web.options.answers_for(uri.authority().map(|authority| authority.as_str()).or(host)) {
        return refused(Fault::Misdirected);
    }
    if form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes())
        .any(|(_, value)| value.contains('\0'))
    {
        // The database cannot store it, so nothing has it in a name.
        return refused(Fault::BadRequest("The address has a NUL character.".into()));
    }
    let is_change = !matches!(*request.method(), Method::GET | Method::HEAD);
    let is_by_cookie = is_api && bearer(headers).is_none();
    if (is_change || is_by_cookie) && !is_own(headers) {
        let why = "the request does not come from this page";
        return refused(Fault::Forbidden(why.into()));
    }
    if !web.secret.is_needed() || uri.path().starts_with("/assets/") || uri.path() == "/login" {
        return None;
    }
    if let Some(token) = Fields::of(uri.query().unwrap_or_default()).last("token") {
        return if web.secret.is_token(token) {
            Some(logged_in(web, base, headers, &without_token(uri)))
        } else {
            ask(&without_token(uri), Some(WRONG_TOKEN))
        };
    }
    if let Some(token) = bearer(headers) {
        return if web.secret.is_token(token) { None } else { ask("/", Some(WRONG_TOKEN)) };
    }
    let (name, _) = web.secret.session();
    if cookie(headers, name).is_some_and(|session| web.secret.is_session(session)) {
        return None;
    }
    ask(uri.path_and_query().map_or("/", |path| path.as_str()), None)
}

/// The token that a program sends.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Whether the browser says that a request comes from this page, or it is no browser.
fn is_own(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    if let Some(site) = text("sec-fetch-site") {
        return matches!(site, "same-origin" | "none");
    }
    let Some(origin) = text(ORIGIN.as_str()) else { return true };
    let host = origin.split_once("://").map(|(_, host)| host);
    host.is_some() && host == text(HOST.as_str())
}

/// The value of a cookie.
pub(crate) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let all = headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let mut items = all.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    items.find(|(it, _)| *it == name).map(|(_, value)| value)
}

/// The path and query without the token.
fn without_token(uri: &Uri) -> String {
    let items = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    let query = form_urlencoded::Serializer::new(String::new())
        .extend_pairs(items.filter(|(name, _)| name != "token"))
        .finish();
    if query.is_empty() { uri.path().to_owned() } else { format!("{}?{query}", uri.path()) }
}

/// Asks for the token.
fn ask(base: &str, next: &str, error: Option<&'static str>) -> Response {
    let asked = LoginPage { base: base.into(), style: assets::style(), next: next.into(), error };
    (StatusCode::UNAUTHORIZED, page(&asked)).into_response()
}

/// Sends the visitor to a path, with the cookie.
fn logged_in(web: &Web, base: &str, headers: &HeaderMap, next: &str) -> Response {
    let (name, session) = web.secret.session();
    let session = set_cookie((name, session), base, headers, SESSION_SECONDS);
    let next = if is_own_path(next) { next } else { "/" };
    let mut response = redirect(&address(base, next));
    response.headers_mut().append(SET_COOKIE, session);
    response
}

/// A cookie that scripts cannot read and other sites do not send with forms. Its name and value have no separators.
pub(crate) fn set_cookie(
    (name, value): (&str, &str),
    base: &str,
    headers: &HeaderMap,
    seconds: u32,
) -> HeaderValue {
    let is_https = headers.get("x-forwarded-proto").is_some_and(|scheme| scheme == "https");
    let secure = if is_https { "; Secure" } else { "" };
    // The path of the router itself has no `/` at its end.
    let path = if base.is_empty() { "/" } else { base };
    let text = format!("{name}={value}; Path={path}; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}");
    // A path that no header can have is not possible in a URI.
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("scoop="))
}

/// Sends the browser to a path of this page by GET.
pub(crate) fn redirect(path: &str) -> Response {
    let location = HeaderValue::try_from(path).unwrap_or_else(|_| HeaderValue::from_static("/"));
    (StatusCode::SEE_OTHER, [(LOCATION, location)]).into_response()
}

/// Shows the form for the token.
pub(crate) async fn login(base: Base) -> Response {
    ask(&base.0, "/", None)
}

/// Checks the token of the form.
pub(crate) async fn log_in(
    State(web): State<SharedWeb>,
    base: Base,
    headers: HeaderMap,
    Form(fields): Form<Vec<(String, String)>>,
) -> Response {
    let fields = Fields::from(fields);
    let next = fields.last("next").filter(|next| is_own_path(next)).unwrap_or("/");
    if fields.last("token").is_some_and(|token| web.secret.is_token(token.trim())) {
        logged_in(&web, &base.0, &headers, next)
    } else {
        ask(&base.0, next, Some(WRONG_TOKEN))
    }
}

/// Whether the text is a path of this page, not the address of another host.
fn is_own_path(path: &str) -> bool {
    let mut bytes = path.bytes();
    bytes.next() == Some(b'/')
        && !matches!(bytes.next(), Some(b'/' | b'\\'))
        && path.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_of_another_host_is_no_place_after_the_login() {
        assert!(is_own_path("/") && is_own_path("/runs?state=stuck"));
        for other in ["", "runs", "//evil.example", "/\\evil.example", "https://evil.example", "/a\nb"] {
            assert!(!is_own_path(other), "{other:?}");
        }
    }

    #[test]
    fn form_of_another_site_is_not_own() {
        let headers = |items: &[(&'static str, &'static str)]| {
            items.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
        };
        assert!(is_own(&headers(&[])));
        assert!(is_own(&headers(&[("origin", "http://localhost:1"), ("host", "localhost:1")])));
        assert!(is_own(&headers(&[
            ("sec-fetch-site", "same-origin"),
            ("origin", "https://a"),
            ("host", "b")
        ])));
        assert!(!is_own(&headers(&[("origin", "http://localhost:2"), ("host", "localhost:1")])));
        assert!(!is_own(&headers(&[("origin", "null"), ("host", "localhost:1")])));
        assert!(!is_own(&headers(&[("sec-fetch-site", "same-site")])));
        assert!(!is_own(&headers(&[("sec-fetch-site", "cross-site")])));
    }
}
