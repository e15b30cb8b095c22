//! One Rust file as far as imports go: what it names of its own crate, and under which names.
//!
//! It reads tokens, not syntax: the paths in the arguments of macros count as well, and no grammar has to be known.

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};
use std::collections::HashSet;
use std::iter::Peekable;

type Tokens = Peekable<proc_macro2::token_stream::IntoIter>;

/// What a file says of other files.
#[derive(Default)]
pub(super) struct Source {
    /// The path that each `use` imports, and the name by which the file knows it.
    pub(super) uses: Vec<(Vec<String>, String)>,
    /// Paths in the code that begin with `crate`, `self`, `super` or a name.
    mentioned: Vec<Vec<String>>,
    /// Modules that exist in tests and models alone.
    pub(super) test_modules: HashSet<String>,
}

impl Source {
    /// All paths that the file names.
    pub(super) fn paths(&self) -> impl Iterator<Item = Vec<String>> + '_ {
        let imported = self.uses.iter().map(|(path, _)| path);
        imported.chain(&self.mentioned).cloned()
    }
}

/// Reads a file.
pub(super) fn read(text: &str) -> Source {
    let tokens: TokenStream = text.parse().expect("a file that compiles");
    let mut source = Source::default();
    source.read(tokens.into_iter().peekable(), 0);
    source
}

impl Source {
    /// Reads what stands in so many modules within the file.
    fn read(&mut self, mut tokens: Tokens, depth: usize) {
        let mut for_tests = false;
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Group(group) => {
                    // An attribute holds for the next item, of which a group of braces or a semicolon is the end.
                    for_tests = match group.delimiter() {
                        Delimiter::Bracket => for_tests || is_for_tests(group.stream()),
                        Delimiter::Brace => false,
                        _ => for_tests,
                    };
                    self.read(group.stream().into_iter().peekable(), depth);
                }
                TokenTree::Ident(word) if word == "use" => {
                    self.read_use(&mut tokens, depth);
                    for_tests = false;
                }
                TokenTree::Ident(word) if word == "mod" => {
                    self.read_module(&mut tokens, depth, std::mem::take(&mut for_tests));
                }
                TokenTree::Ident(word) => self.read_path(word.to_string(), &mut tokens, depth),
                TokenTree::Punct(mark) if mark.as_char() == ';' => for_tests = false,
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
    }

    fn read_module(&mut self, tokens: &mut Tokens, depth: usize, for_tests: bool) {
        let Some(TokenTree::Ident(name)) = tokens.next() else {
            return;
        };
        match tokens.next() {
            Some(TokenTree::Group(body)) if !for_tests => {
                self.read(body.stream().into_iter().peekable(), depth + 1)
            }
            Some(TokenTree::Punct(_)) if for_tests => {
                self.test_modules.insert(name.to_string());
            }
            _ => {}
        }
    }

    fn read_use(&mut self, tokens: &mut Tokens, depth: usize) {
        let is_end = |token: &TokenTree| matches!(token, TokenTree::Punct(mark) if mark.as_char() == ';');
        let tree: Vec<_> = tokens.take_while(|token| !is_end(token)).collect();
        self.read_use_tree(&tree, &[], depth);
    }

    /// One branch of a tree: `a::b`, `a::b as c`, `a::{…}`, `a::*`.
    fn read_use_tree(&mut self, tree: &[TokenTree], prefix: &[String], depth: usize) {
        let mut path = prefix.to_vec();
        let mut tokens = tree.iter();
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Ident(word) if word == "as" => {
                    if let Some(name) = tokens.next() {
                        self.import(path, name.to_string(), depth);
                    }
                    return;
                }
                TokenTree::Ident(word) => path.push(word.to_string()),
                TokenTree::Group(branches) => {
                    let branches: Vec<_> = branches.stream().into_iter().collect();
                    for branch in branches
                        .split(|token| matches!(token, TokenTree::Punct(mark) if mark.as_char() == ','))
                    {
                        if !branch.is_empty() {
                            self.read_use_tree(branch, &path, depth);
                        }
                    }
                    return;
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
        if path.len() > 1 && path.last().is_some_and(|name| name == "self") {
            path.pop();
        }
        if let Some(name) = path.last().cloned() {
            self.import(path, name, depth);
        }
    }

    fn import(&mut self, path: Vec<String>, name: String, depth: usize) {
        if let Some(path) = seen_from_the_file(path, depth) {
            self.uses.push((path, name));
        }
    }

    /// A path in the code, of which the first word was read.
    fn read_path(&mut self, first: String, tokens: &mut Tokens, depth: usize) {
        let mut path = vec![first];
        // The first of the two marks is joined to the second; the one before a type is not.
        while tokens.next_if(|token| is_colon(token, Spacing::Joint)).is_some() {
            tokens.next();
            match tokens.next_if(|token| matches!(token, TokenTree::Ident(_))) {
                Some(name) => path.push(name.to_string()),
                None => break,
            }
        }
        if path.len() > 1 {
            self.mentioned.extend(seen_from_the_file(path, depth));
        }
    }
}

fn is_colon(token: &TokenTree, spacing: Spacing) -> bool {
    matches!(token, TokenTree::Punct(mark) if mark.as_char() == ':' && mark.spacing() == spacing)
}

/// A path as it reads in the file's own module, of one that stands in so many modules within it. `None` if it stays in them.
fn seen_from_the_file(mut path: Vec<String>, depth: usize) -> Option<Vec<String>> {
    match path[0].as_str() {
        "crate" => Some(path),
        "super" if depth > 0 => {
            let ups = path.iter().take_while(|name| *name == "super").count();
            if ups < depth {
                return None;
            }
            path.drain(..depth);
            if path.first().is_none_or(|name| name != "super") {
                path.insert(0, "self".to_owned());
            }
            Some(path)
        }
        _ if depth > 0 => None,
        _ => Some(path),
    }
}

/// Whether an attribute is `cfg(test)`, `cfg(loom)`, `cfg(fuzzing)` or the like.
fn is_for_tests(attribute: TokenStream) -> bool {
    let text = attribute.to_string();
    text.starts_with("cfg")
        && !text.contains("not")
        && ["test", "loom", "fuzzing"].iter().any(|word| text.contains(word))
}
