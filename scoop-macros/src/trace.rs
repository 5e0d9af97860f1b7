//! `#[trace]`, and the same for `#[saga]`: each `?` records that an error passes it.
//!
//! Bodies are not parsed: a method call is inserted between a `?` and the token before it, so that half-written
//! code stays as it is. The method returns its receiver, but an error that it examines must not borrow
//! anything. Where `?` converts into our error that is guaranteed. Hence only functions with such a result are
//! changed, and in them no closure, no `async` block, no nested function, and no macro unless it is known to
//! take expressions.

use std::iter::Peekable;

use proc_macro2::token_stream::IntoIter;
use proc_macro2::{Delimiter, Group, Literal, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::{GenericArgument, Path, PathArguments, ReturnType, Signature, Type};

/// Macros that take expressions, and evaluate them in the function.
const TRACED_MACROS: [&str; 18] = [
    "assert",
    "assert_eq",
    "assert_ne",
    "dbg",
    "debug_assert",
    "debug_assert_eq",
    "debug_assert_ne",
    "eprint",
    "eprintln",
    "format",
    "matches",
    "panic",
    "print",
    "println",
    "unreachable",
    "vec",
    "write",
    "writeln",
];

/// Words before a block from which a `?` does not return to the caller.
const UNTRACED_MACROS: [&str; 5] = ["async", "const", "gen", "move", "try"];

/// Words that no `?` operator follows, and after which a `|` begins a closure.
const NO_OPERAND: [&str; 14] = [
    "as", "async", "break", "dyn", "else", "if", "impl", "in", "match", "move", "mut", "return", "static",
    "while",
];

pub(crate) fn item(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let span = arguments.clone().into_iter().next().map_or(Span::call_site(), |argument| argument.span());
    let message = if !arguments.is_empty() {
        "`#[trace]` takes no settings; remove them"
    } else if !has_function(&item) {
        "`#[trace]` belongs on a function, or on a block with functions"
    } else {
        return functions(item);
    };
    let error = syn::Error::new(span, message).to_compile_error();
    quote!(#error #item)
}

/// The body of a function, traced if the function returns our result.
pub(crate) fn body(signature: &Signature, body: TokenTree) -> TokenTree {
    match body {
        TokenTree::Group(block) if block.delimiter() == Delimiter::Brace && can_be_traced(signature) => {
            let mut tracer = Tracer { function: signature.ident.unraw().to_string(), found: false };
            let traced = tracer.traced(block.stream());
            if tracer.found { regrouped(&block, with_import(traced)) } else { block.into() }
        }
        body => body,
    }
}

/// Whether all errors that the function passes are known to borrow nothing. With a `From` in its conditions
/// they may be any errors.
fn can_be_traced(signature: &Signature) -> bool {
    let asks_for_from = |tokens: TokenStream| tokens.into_iter().any(|token| is_word(&token, &["From"]));
    let conditions = signature.generics.where_clause.as_ref();
    let is_ours = match &signature.output {
        ReturnType::Type(_, ty) => is_our_result(ty),
        ReturnType::Default => false,
    };
    is_ours && !conditions.is_some_and(|conditions| asks_for_from(conditions.to_token_stream()))
}

/// Whether the type is `Result<T>`, `scoop::Result<T>`, any `Result<T, Error>` or `Result<T, scoop::Error>`.
/// Another type of that name does no harm unless its errors borrow.
fn is_our_result(ty: &Type) -> bool {
    let is_ours = |path: &Path| path.segments.len() == 1 || path.segments[0].ident == "scoop";
    let path = match ty {
        Type::Group(group) => return is_our_result(&group.elem),
        Type::Path(path) => &path.path,
        _ => return false,
    };
    let result = path.segments.last().filter(|segment| segment.ident == "Result");
    let Some(PathArguments::AngleBracketed(arguments)) = result.map(|segment| &segment.arguments) else {
        return false;
    };
    let arguments: Vec<_> = arguments.args.iter().collect();
    match &*arguments {
        [GenericArgument::Type(_)] => is_ours(path),
        [GenericArgument::Type(_), GenericArgument::Type(Type::Path(error))] => {
            let last = error.path.segments.last();
            is_ours(&error.path) && last.is_some_and(|last| last.ident == "Error" && last.arguments.is_none())
        }
        _ => false,
    }
}

fn has_function(tokens: &TokenStream) -> bool {
    tokens.clone().into_iter().any(|token| match token {
        TokenTree::Group(group) => has_function(&group.stream()),
        token => is_word(&token, &["fn"]),
    })
}

fn functions(tokens: TokenStream) -> TokenStream {
    let mut tokens = tokens.into_iter().peekable();
    let mut output = TokenStream::new();
    while let Some(token) = tokens.next() {
        if begins_function(&token, &mut tokens) {
            let (signature, block) = function(token, &mut tokens);
            let parsed = syn::parse2::<Signature>(signature.clone());
            signature.to_tokens(&mut output);
            output.extend(block.map(|block| match parsed {
                Ok(signature) => body(&signature, block),
                Err(_) => block,
            }));
            continue;
        }
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                regrouped(&group, functions(group.stream())).to_tokens(&mut output);
            }
            token => token.to_tokens(&mut output),
        }
    }
    output
}

/// Whether a function with a name begins here, and not a function type.
fn begins_function(token: &TokenTree, rest: &mut Peekable<IntoIter>) -> bool {
    is_word(token, &["fn"]) && matches!(rest.peek(), Some(TokenTree::Ident(_)))
}

/// A function up to its body, and the body, if there is one.
fn function(first: TokenTree, rest: &mut Peekable<IntoIter>) -> (TokenStream, Option<TokenTree>) {
    let mut signature = TokenStream::from(first);
    for token in rest {
        if is_group(&token, Delimiter::Brace) {
            return (signature, Some(token));
        }
        let ends = is_punct(&token, ';');
        signature.extend([token]);
        if ends {
            break;
        }
    }
    (signature, None)
}

struct Tracer {
    function: String,
    found: bool,
}

impl Tracer {
    fn traced(&mut self, tokens: TokenStream) -> TokenStream {
        let mut tokens = tokens.into_iter().peekable();
        let mut output: Vec<TokenTree> = Vec::new();
        while let Some(token) = tokens.next() {
            if is_punct(&token, '?') && ends_operand(&output) {
                self.found = true;
                output.extend(self.call(token.span()));
                output.push(token);
            } else if is_punct(&token, '|') && !ends_operand(&output) {
                // A closure, which extends to the end of the statement at most.
                output.push(token);
                output.extend(statement(&mut tokens));
            } else if is_punct(&token, '|') {
                output.push(token);
                output.extend(tokens.next_if(|next| is_punct(next, '|')));
            } else if begins_function(&token, &mut tokens) {
                let (signature, block) = function(token, &mut tokens);
                output.extend(signature.into_iter().chain(block));
            } else if let TokenTree::Group(group) = &token
                && stays_in_function(&output, group)
            {
                output.push(regrouped(group, self.traced(group.stream())));
            } else {
                output.push(token);
            }
        }
        output.into_iter().collect()
    }

    /// The call before a `?`, with the place of the `?`, because that place is recorded.
    fn call(&self, span: Span) -> TokenStream {
        let mut function = Literal::string(&self.function);
        function.set_span(span);
        quote_spanned!(span=> .try_operator(#function))
    }
}

/// Whether an expression ends here, so that a `?` belongs to it.
fn ends_operand(before: &[TokenTree]) -> bool {
    match before {
        [.., mark, TokenTree::Group(_) | TokenTree::Ident(_)] if is_punct(mark, '$') => false,
        [.., TokenTree::Group(_) | TokenTree::Literal(_)] => true,
        [.., last @ TokenTree::Ident(_)] => !is_word(last, &NO_OPERAND),
        [.., last] => is_punct(last, '?'),
        [] => false,
    }
}

/// Whether code in this group, after these tokens, belongs to the function itself.
fn stays_in_function(before: &[TokenTree], group: &Group) -> bool {
    match (group.delimiter(), before) {
        (Delimiter::None, _) => false,
        (_, [.., name @ TokenTree::Ident(_), mark]) if is_punct(mark, '!') => is_word(name, &TRACED_MACROS),
        (_, [.., mark, TokenTree::Ident(_)]) if is_punct(mark, '!') => !is_macro_definition(before),
        (Delimiter::Bracket, [.., mark]) if is_punct(mark, '#') || is_punct(mark, '!') => false,
        (Delimiter::Brace, [.., last]) => !is_word(last, &UNTRACED_MACROS),
        _ => true,
    }
}

/// Whether the tokens end in `macro_rules! name`.
fn is_macro_definition(before: &[TokenTree]) -> bool {
    matches!(before, [.., word, _, _] if is_word(word, &["macro_rules"]))
}

/// The tokens up to a semicolon, or all.
fn statement(rest: &mut Peekable<IntoIter>) -> Vec<TokenTree> {
    let mut tokens = Vec::new();
    for token in rest {
        let ends = is_punct(&token, ';');
        tokens.push(token);
        if ends {
            break;
        }
    }
    tokens
}

/// The code with an import of the method that it calls, after the attributes that must come first.
fn with_import(code: TokenStream) -> TokenStream {
    let mut rest = code.into_iter().peekable();
    let mut attributes = TokenStream::new();
    loop {
        let mut ahead = rest.clone();
        let begins = [ahead.next(), ahead.next(), ahead.next()];
        match begins {
            [Some(hash), Some(mark), Some(brackets)]
                if is_punct(&hash, '#')
                    && is_punct(&mark, '!')
                    && is_group(&brackets, Delimiter::Bracket) =>
            {
                attributes.extend([hash, mark, brackets]);
                rest = ahead;
            }
            _ => break,
        }
    }
    let rest: TokenStream = rest.collect();
    quote! {
        #attributes
        #[allow(unused_imports)]
        use ::scoop::__private::TryOperator as _;
        #rest
    }
}

fn regrouped(group: &Group, tokens: TokenStream) -> TokenTree {
    let mut regrouped = Group::new(group.delimiter(), tokens);
    regrouped.set_span(group.span());
    regrouped.into()
}

fn is_punct(token: &TokenTree, char: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == char)
}

fn is_word(token: &TokenTree, words: &[&str]) -> bool {
    matches!(token, TokenTree::Ident(ident) if words.iter().any(|word| ident == word))
}

fn is_group(token: &TokenTree, delimiter: Delimiter) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == delimiter)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traced(code: &str) -> String {
        let block = Group::new(Delimiter::Brace, code.parse().expect("tokens"));
        let signature: Signature = syn::parse_str("fn f() -> Result<()>").expect("a signature");
        without_blanks(&body(&signature, block.into()).to_string())
    }

    fn without_blanks(text: &str) -> String {
        text.replace([' ', '\n'], "")
    }

    /// `→` is the call.
    fn check(code: &str, expected: &str) {
        let import = if expected.contains('→') {
            "#[allow(unused_imports)] use ::scoop::__private::TryOperator as _;"
        } else {
            ""
        };
        let expected = format!("{{ {import} {} }}", expected.replace('→', ".try_operator(\"f\")"));
        assert_eq!(traced(code), without_blanks(&expected));
    }

    #[test]
    fn each_question_mark_is_traced() {
        check("a()?", "a()→?");
        check("a?.b[0]?.1?.await??;", "a→?.b[0]→?.1→?.await→?→?;");
        check("f(g(a?, 7)?)", "f(g(a→?, 7)→?)");
        check(
            "if a? || b? { c? } else { match d? { A | B => e? } }",
            "if a→? || b→? { c→? } else { match d→? { A | B => e→? } }",
        );
        check("let x = a | b? | c?;", "let x = a | b→? | c→?;");
        check("match x {}?; unsafe { y }?", "match x {}→?; unsafe { y }→?");
        check("return a?", "return a→?");
        check("S { a: b?, ..c? }", "S { a: b→?, ..c→? }");
    }

    #[test]
    fn question_mark_that_is_no_operator_stays() {
        for code in [
            "let x: &(impl ?Sized + Debug) = y;",
            "struct S<T: ?Sized>(T);",
            "let x: &(dyn ?Sized) = y;",
            "x. ?",
            "? x",
            "m!($(a),*) $(b)? $c?",
            "",
        ] {
            check(code, code);
        }
    }

    #[test]
    fn code_that_does_not_return_to_the_function_is_left_alone() {
        for code in [
            "list.map(|x| x?)",
            "list.map(|a, b| -> Option<u8> { a?.c(b?) })",
            "let f = move || { x? };",
            "async { x? }; async move { x? }",
            "const { x? }",
            "fn inner<T: ?Sized>(x: Option<u8>) -> Option<u8> { x? }",
            "impl Foo { fn inner(&self) -> Option<u8> { x? } }",
        ] {
            check(code, code);
        }
        check("let f = |x| x?; b?", "let f = |x| x?; b→?");
        check("fn inner() -> Option<u8> { x? } b?", "fn inner() -> Option<u8> { x? } b→?");
        check("let f: fn(u8) -> u8 = g?;", "let f: fn(u8) -> u8 = g→?;");
    }

    #[test]
    fn macros_are_left_alone_unless_they_take_expressions() {
        for code in
            ["query!(a?)", "macro_rules! m { ($($x:ident)?) => { x? } }", "html! { a? }", "#[a(b?)] x"]
        {
            check(code, code);
        }
        check("println!(\"{}\", a?)", "println!(\"{}\", a→?)");
        check("std::vec![a?; 3]", "std::vec![a→?; 3]");
        check("query!(a?)?", "query!(a?)→?");
        check("if !(a?) {}", "if !(a?) {}");
        check("f(!(a?))", "f(!(a→?))");
        check("x != (a?)", "x != (a→?)");
    }

    #[test]
    fn only_our_results_are_traced() {
        let ours = |ty: &str| is_our_result(&syn::parse_str(ty).expect("a type"));
        for ty in [
            "Result<()>",
            "scoop::Result<A, Error>",
            "::scoop::Result<T>",
            "std::result::Result<(), scoop::Error>",
        ] {
            assert!(ours(ty), "{ty}");
        }
        for ty in [
            "Option<()>",
            "io::Result<()>",
            "Result<T, E>",
            "Result<T, Error<&str>>",
            "Result<'a, T>",
            "()",
            "Result",
            "Result<T, io::Error>",
        ] {
            assert!(!ours(ty), "{ty}");
        }
    }

    #[test]
    fn functions_are_found_in_blocks() {
        let code =
            "impl A { async fn f<F: Fn() -> Result<u8>>(f: F) -> Result<()> where F: Clone { f()?; Ok(()) }
                    fn g() -> Option<u8> { a? } fn h() -> Result<()>;
                    fn i<E>(e: E) -> Result<()> where Error: From<E> { Err(e)? } }";
        let traced = functions(code.parse().expect("tokens")).to_string();
        assert_eq!(traced.matches("try_operator").count(), 1, "{traced}");
        assert!(traced.contains("f () . try_operator (\"f\") ?"), "{traced}");
    }

    #[test]
    fn attributes_of_the_body_stay_first() {
        let traced = traced("#![allow(unused)] #![warn(x)] a?");
        assert!(traced.starts_with("{#![allow(unused)]#![warn(x)]#[allow(unused_imports)]use"), "{traced}");
    }
}
