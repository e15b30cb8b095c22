//! Import circles: files of one crate that import each other, directly or by way of others.
//!
//! A file imports another if it names one of its items, in a `use` or by a path. An item that is re-exported counts for the file that
//! defines it. A module and the parts in its folder are one unit, so a file may import from the modules around it. Test modules are
//! not looked at. Names that a macro makes up are not seen.

mod source;

use source::{Source, read};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};

/// The path of a module in its crate: `["link", "udp"]`.
type Module = Vec<String>;

/// The files of a crate, and what each imports.
struct Imports {
    files: BTreeMap<Module, PathBuf>,
    of: BTreeMap<Module, BTreeSet<Module>>,
}

impl Imports {
    /// Of the crate whose sources are in a folder.
    fn of_crate(folder: &Path) -> Self {
        let mut sources = Sources::default();
        sources.add_folder(folder, &Module::new());
        let mut of = BTreeMap::new();
        for (module, source) in &sources.parsed {
            let mut imported = BTreeSet::new();
            for path in source.paths() {
                let target = sources.defining(module, &path);
                imported.extend(target.filter(|target| !module.starts_with(target)));
            }
            of.insert(module.clone(), imported);
        }
        Self {
            files: sources.files,
            of,
        }
    }

    /// For each file that imports itself by way of others, the shortest such way.
    fn circles(&self) -> Vec<Vec<&Path>> {
        let mut told = HashSet::new();
        let mut circles = Vec::new();
        for module in self.of.keys() {
            let Some(way) = self.way_back_to(module) else {
                continue;
            };
            if told.insert(way.iter().copied().collect::<BTreeSet<_>>()) {
                circles.push(way.iter().map(|module| self.files[*module].as_path()).collect());
            }
        }
        circles
    }

    /// Breadth first, so that the way found is the shortest.
    fn way_back_to<'a>(&'a self, begin: &'a Module) -> Option<Vec<&'a Module>> {
        let mut from = BTreeMap::new();
        let mut queue = std::collections::VecDeque::from([begin]);
        while let Some(module) = queue.pop_front() {
            for next in self.of.get(module)? {
                if next == begin {
                    let mut way = vec![module];
                    while let Some(before) = from.get(way[way.len() - 1]) {
                        way.push(*before);
                    }
                    way.reverse();
                    return Some(way);
                }
                if !from.contains_key(next) {
                    from.insert(next, module);
                    queue.push_back(next);
                }
            }
        }
        None
    }
}

/// The parsed files of a crate.
#[derive(Default)]
struct Sources {
    files: BTreeMap<Module, PathBuf>,
    parsed: BTreeMap<Module, Source>,
}

impl Sources {
    fn add_folder(&mut self, folder: &Path, module: &Module) {
        for root in ["lib.rs", "main.rs", "mod.rs"] {
            if folder.join(root).exists() {
                self.add_file(&folder.join(root), module.clone());
            }
        }
        let mut entries: Vec<_> = std::fs::read_dir(folder)
            .expect("a folder of sources")
            .map(|entry| entry.expect("readable").path())
            .collect();
        // `udp.rs` before `udp/`.
        entries.sort_by_key(|path| path.is_dir());
        for path in entries {
            let name = path.file_stem().and_then(|name| name.to_str()).expect("UTF-8");
            let mut inner = module.clone();
            inner.push(name.to_owned());
            if self.is_for_tests(module, name) {
                continue;
            }
            if path.is_dir() {
                self.add_folder(&path, &inner);
            } else if path.extension().is_some_and(|extension| extension == "rs")
                && !matches!(name, "lib" | "main" | "mod")
            {
                self.add_file(&path, inner);
            }
        }
    }

    fn is_for_tests(&self, module: &Module, name: &str) -> bool {
        self.parsed
            .get(module)
            .is_some_and(|source| source.test_modules.contains(name))
    }

    fn add_file(&mut self, path: &Path, module: Module) {
        let text = std::fs::read_to_string(path).expect("readable");
        self.parsed.insert(module.clone(), read(&text));
        self.files.insert(module, path.to_owned());
    }

    /// The file that defines what a path names in a module, if it is in this crate.
    fn defining(&self, module: &Module, path: &[String]) -> Option<Module> {
        let (begin, rest) = self.absolute(module, path)?;
        Some(self.followed(begin, rest, &mut HashSet::new()))
    }

    /// The module in which the rest of a path is to be looked up.
    fn absolute<'a>(&self, module: &Module, path: &'a [String]) -> Option<(Module, &'a [String])> {
        match path[0].as_str() {
            "crate" => Some((Module::new(), &path[1..])),
            "self" => Some((module.clone(), &path[1..])),
            "super" => {
                let ups = path.iter().take_while(|name| *name == "super").count();
                let outer = module.len().checked_sub(ups)?;
                Some((module[..outer].to_vec(), &path[ups..]))
            }
            inner => {
                let is_part = self
                    .parsed
                    .contains_key(&[module.as_slice(), &[inner.to_owned()]].concat());
                is_part.then(|| (module.clone(), path))
            }
        }
    }

    /// Goes down the modules of a path, and from a re-export to what it names.
    fn followed(&self, mut module: Module, path: &[String], seen: &mut HashSet<(Module, String)>) -> Module {
        let mut path = path;
        while let [name, rest @ ..] = path {
            let inner = [module.as_slice(), std::slice::from_ref(name)].concat();
            if !self.parsed.contains_key(&inner) {
                break;
            }
            (module, path) = (inner, rest);
        }
        let Some(name) = path.first() else {
            return module;
        };
        let named = self.parsed[&module]
            .uses
            .iter()
            .find(|(_, known_as)| known_as == name);
        let Some((target, _)) = named else {
            return module;
        };
        if !seen.insert((module.clone(), name.clone())) {
            return module;
        }
        match self.absolute(&module, target) {
            Some((begin, rest)) => self.followed(begin, &[rest, &path[1..]].concat(), seen),
            None => module,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dist::workspace;

    #[test]
    fn no_file_imports_one_that_imports_it() {
        let mut circles = Vec::new();
        let crates = std::fs::read_dir(workspace().join("crates")).expect("a folder of crates");
        let sources = crates
            .map(|package| package.expect("readable").path().join("src"))
            .chain(["testbed/src", "xtask/src", "xtask/bare/src"].map(|source| workspace().join(source)));
        for source in sources {
            for circle in Imports::of_crate(&source).circles() {
                let files: Vec<_> = circle
                    .iter()
                    .map(|file| {
                        file.strip_prefix(workspace())
                            .unwrap_or(file)
                            .display()
                            .to_string()
                    })
                    .collect();
                circles.push(files.join(" → "));
            }
        }
        assert!(
            circles.is_empty(),
            "files that import each other:\n{}",
            circles.join("\n")
        );
    }

    /// The circles in a crate of these files.
    fn circles_of(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let folder = tempfile::tempdir().expect("a folder");
        for (path, text) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().expect("in a folder")).expect("made");
            std::fs::write(path, text).expect("written");
        }
        let name = |path: &&Path| {
            path.strip_prefix(folder.path())
                .expect("inside")
                .display()
                .to_string()
        };
        Imports::of_crate(folder.path())
            .circles()
            .iter()
            .map(|circle| circle.iter().map(name).collect())
            .collect()
    }

    #[test]
    fn files_that_import_each_other_are_found_once() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "use crate::b::B; pub struct A;"),
            ("b.rs", "pub struct B; fn f() { let _ = super::c::g(); }"),
            ("c.rs", "pub fn g() { panic!(\"{}\", crate::a::A::NAME) }"),
        ];
        assert_eq!(circles_of(&files), [["a.rs", "b.rs", "c.rs"]]);
    }

    #[test]
    fn a_reexport_counts_for_the_file_that_defines_the_item() {
        let files = [
            ("lib.rs", "mod a; mod b;"),
            ("a/mod.rs", "mod x; mod y; pub use x::X; use crate::b::B;"),
            ("a/x.rs", "pub struct X;"),
            ("a/y.rs", "use super::X;"),
            ("b.rs", "use crate::a::{X as Renamed}; pub struct B;"),
        ];
        assert_eq!(circles_of(&files), Vec::<Vec<String>>::new());
    }

    #[test]
    fn a_module_and_its_parts_are_one_unit_and_tests_are_not_looked_at() {
        let files = [
            ("lib.rs", "mod a; mod b;"),
            (
                "a.rs",
                "mod part; #[cfg(test)] mod tests; use part::P; pub struct A; #[cfg(test)] mod inner { use crate::b::B; }",
            ),
            ("a/part.rs", "use super::A; pub struct P;"),
            ("a/tests.rs", "use crate::b::B;"),
            ("b.rs", "use crate::a::A; pub struct B;"),
        ];
        assert_eq!(circles_of(&files), Vec::<Vec<String>>::new());
    }
}
