//! What the process gives up, so that a fault in it does little harm: privileges that it could gain, core dumps, and the files that a server does
//! not need.
//!
//! Privileges and core dumps go first, before another thread runs. Access to files follows once everything that is read only at the start has been
//! read: from then on the kernel (Landlock) refuses whatever no rule allows, to the calling thread and to all threads that it starts. A thread that
//! runs already has to confine itself; these are the threads that write logs ([`Joining`]).
//!
//! A rule is about a directory and what is below it, wherever links lead from there: a link inside the data directory to a place outside is not
//! followed.

use crate::flags::Confine;
use crate::keys::make_directory;
use crate::settings::Settings;
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, PathBeneath, PathFd,
    PathFdError, RestrictionStatus, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError,
    RulesetStatus, Scope, make_bitflags,
};
use rustix::fs::statfs;
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::set_no_new_privs;
use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

/// The newest version of Landlock that the server was tested with.
const TESTED: ABI = ABI::V7;
/// The oldest version that `-confine required` accepts: kernels with an older one let a process truncate any file.
const REQUIRED: ABI = ABI::V3;
/// Each restriction with the version of Landlock that introduced it.
const RESTRICTIONS: [(ABI, &str); 5] = [
    (ABI::V2, "files"),
    (ABI::V3, "truncation of files"),
    (ABI::V4, "listening on further TCP ports"),
    (ABI::V5, "control of devices"),
    (ABI::V6, "signals to other processes and abstract sockets"),
];

/// The magic number of the file system of anonymous pipes.
const PIPEFS_MAGIC: u64 = 0x5049_5045;

/// The most links that are followed from a path; the kernel follows as many.
const LINKS_MAX: usize = 40;

/// The rights to read files and directories.
const READ: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | ReadDir});
/// The rights to replace files in a directory.
const REPLACE: BitFlags<AccessFs> =
    make_bitflags!(AccessFs::{ReadFile | ReadDir | WriteFile | Truncate | MakeReg | RemoveFile});
/// The rights to reopen a log file for appending, and to create one that does not exist.
const APPEND: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | WriteFile | MakeReg});
/// The rights for everything that is done in the data directory. Making devices, sockets or links and running programs are not among them.
const CHANGE: BitFlags<AccessFs> = make_bitflags!(AccessFs::{
    ReadFile | ReadDir | WriteFile | Truncate | MakeReg | RemoveFile | MakeDir | RemoveDir | Refer
});
/// The rights that the driver of a GPU needs for its devices.
const DEVICE: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | ReadDir | WriteFile | IoctlDev});

/// The rules that are in force, for threads that have to confine themselves.
static RULES: OnceLock<(RulesetCreated, Confine)> = OnceLock::new();

/// A path that stays accessible with these rights, and so does all that is below it.
#[derive(Debug, PartialEq, Eq)]
struct PathRule {
    path: PathBuf,
    access: BitFlags<AccessFs>,
}

/// Has the process gain no privileges from programs that it starts, and leave no memory in core dumps. Call before another thread runs.
///
/// # Errors
/// A sentence that says what could not be given up; everything else has been given up.
pub fn give_up_privileges(how: Confine) -> Result<(), String> {
    if how == Confine::Off {
        return Ok(());
    }
    let privileges = set_no_new_privs(true).map_err(|error| format!("no_new_privs cannot be set: {error}"));
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    let dumps = setrlimit(Resource::Core, none)
        .map_err(|error| format!("the limit of core dumps cannot be lowered: {error}"));
    // The limit does not hold for a core dump that goes to a program, so memory is left out of dumps as well. (Marking the process as one that cannot
    // be dumped would do too, but its own files in /proc would then belong to root.) A kernel that makes no core dumps does not have this file.
    let filter = match fs::write("/proc/self/coredump_filter", "0") {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(format!("memory cannot be left out of core dumps: {error}"))
        }
        _ => Ok(()),
    };
    privileges.and(dumps).and(filter)
}

/// Refuses the start if `-confine required` is given and something could not be given up; otherwise logs a warning.
///
/// # Errors
/// The sentence of `given_up`.
pub fn settle(how: Confine, given_up: Result<(), String>) -> Result<(), String> {
    match given_up {
        Err(reason) if how == Confine::Required => Err(format!("-confine required: {reason}")),
        Err(reason) => {
            tracing::warn!("{reason}; -confine required would prevent the start");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// Confines the calling thread, and all that it starts from now on, to the files that a server needs. What is returned has to be kept for as long as
/// it serves. Call when the data directory exists and everything else has been opened.
///
/// # Errors
/// A directory of a flag cannot be opened, or the kernel cannot enforce what is required.
pub fn confine(settings: &Settings) -> Result<Held, String> {
    let how = settings.confine;
    if how == Confine::Off {
        tracing::info!("-confine off: the server may open every file that its user may open");
        return Ok(Held::default());
    }
    let places = places(settings);
    let ended = rules_for(&places, how).and_then(|(rules, held)| {
        let status = restrict(&rules)?;
        // This precedes the line in the log, because the thread that writes the line confines itself then.
        let _is_the_first = RULES.set((rules, how));
        announce(&status, &places);
        Ok(held)
    });
    match ended {
        Ok(held) => Ok(held),
        Err(reason) => settle(how, Err(reason)).map(|()| Held::default()),
    }
}

/// Whether this process is confined, so that it may be unable to open a file that it could open at the start.
pub fn is_in_force() -> bool {
    RULES.get().is_some()
}

/// The directories of rules, kept open: a rule is attached to the kernel's object of a directory, and file systems such as `/proc` drop objects that
/// nobody holds.
#[derive(Default)]
pub struct Held(Vec<PathFd>);

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Held({} directories)", self.0.len())
    }
}

/// Confines a thread that was started before the process was confined.
#[derive(Debug, Default)]
pub struct Joining {
    has_joined: bool,
}

impl Joining {
    /// Confines the calling thread if the process is confined by now and the thread is not. One thread alone must call this, each time it has
    /// something to do.
    pub fn join(&mut self) {
        if self.has_joined {
            return;
        }
        let Some((rules, how)) = RULES.get() else { return };
        self.has_joined = true;
        let Err(reason) = restrict(rules) else { return };
        if *how == Confine::Required {
            // This is a thread that writes a log, so the reason cannot go to the log.
            let _reader_gone = writeln!(io::stderr(), "-confine required: the thread of a log: {reason}");
            std::process::exit(1);
        }
        tracing::warn!("the thread of a log is not confined: {reason}");
    }
}

/// Logs which restrictions are enforced.
fn announce(status: &RestrictionStatus, places: &[PathRule]) {
    let LandlockStatus::Available { effective_abi, kernel_abi } = status.landlock else { return };
    let names = |is_enforced: bool| {
        let of = RESTRICTIONS.iter().filter(|(since, _)| (*since <= effective_abi) == is_enforced);
        of.map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
    };
    let landlock = kernel_abi.unwrap_or(effective_abi as i32);
    // Several logs may lie in one directory.
    let writable = places.iter().filter(|place| place.access.contains(AccessFs::WriteFile));
    let writable: BTreeSet<String> = writable.map(|place| place.path.display().to_string()).collect();
    let writable = writable.into_iter().collect::<Vec<_>>().join(", ");
    let (enforced, missing) = (names(true), names(false));
    match missing.is_empty() {
        true => tracing::info!(landlock, enforced, writable, "confined"),
        // The kernel is older; what it does enforce is worth having.
        false => {
            tracing::info!(landlock, enforced, not_enforced = missing, writable, "confined")
        }
    }
}

/// Puts rules into force for the calling thread.
fn restrict(rules: &RulesetCreated) -> Result<RestrictionStatus, String> {
    let refused = |error: &dyn std::fmt::Display| format!("the kernel does not confine the server: {error}");
    let rules = rules.try_clone().map_err(|error| refused(&error))?;
    let status = rules.restrict_self().map_err(|error| refused(&error))?;
    match (&status.ruleset, status.landlock) {
        (RulesetStatus::NotEnforced, LandlockStatus::NotEnabled) => {
            Err("Landlock is not enabled in this kernel (boot parameter lsm=), so files are not restricted"
                .to_owned())
        }
        (RulesetStatus::NotEnforced, LandlockStatus::NotImplemented) => {
            Err("this kernel has no Landlock, or a seccomp profile forbids it, so files are not restricted"
                .to_owned())
        }
        (RulesetStatus::NotEnforced, _) => {
            Err("the Landlock of this kernel is older than Linux 5.19, so files are not restricted"
                .to_owned())
        }
        _ => Ok(status),
    }
}

/// Rules that refuse everything but what `places` allow, and the directories that must stay open for them.
fn rules_for(places: &[PathRule], how: Confine) -> Result<(RulesetCreated, Held), String> {
    let refused = |error: RulesetError| match how {
        // What can fail with `required` is the demand for the rights of [`REQUIRED`].
        Confine::Required => {
            format!(
                "this kernel cannot restrict files (Landlock of Linux 6.2), or a seccomp profile forbids it: {error}"
            )
        }
        Confine::On | Confine::Off => format!("the rules of Landlock cannot be made: {error}"),
    };
    let mut rules = handled(how).and_then(Ruleset::create).map_err(refused)?;
    let mut held = Vec::new();
    for PathRule { path, access } in places {
        match PathFd::new(path) {
            Ok(place) => {
                let more = rules
                    .try_clone()
                    .map_err(|error| format!("the rules of Landlock cannot be made: {error}"))?;
                match more.add_rule(PathBeneath::new(&place, *access)) {
                    Ok(more) => {
                        rules = more;
                        held.push(place);
                    }
                    Err(error) => {
                        let reason = format!("Landlock takes no rule for {}: {error}", path.display());
                        if how == Confine::Required {
                            return Err(reason);
                        }
                        tracing::warn!("{reason}; the server cannot open it again");
                    }
                }
            }
            // Not every system has all of these paths, and what cannot be reached now needs no rule.
            Err(PathFdError::OpenCall { source, .. })
                if matches!(source.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {}
            Err(error) => return Err(format!("{} cannot be opened: {error}", path.display())),
        }
    }
    Ok((rules, Held(held)))
}

/// Which operations are refused where no rule allows them.
fn handled(how: Confine) -> Result<Ruleset, RulesetError> {
    let least = match how {
        Confine::Required => Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::from_all(REQUIRED))?,
        // A kernel that does not know this right refuses every move to another directory, and deleting a collection is one. Nothing is restricted
        // there.
        Confine::On | Confine::Off => Ruleset::default()
            .set_compatibility(CompatLevel::SoftRequirement)
            .handle_access(AccessFs::Refer)?,
    };
    // All listeners are open by now. Connections to other machines are not refused: a firewall decides about these.
    least
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(TESTED))?
        .handle_access(AccessNet::BindTcp)?
        .scope(Scope::AbstractUnixSocket | Scope::Signal)
}

/// What a server with these settings needs once it serves.
fn places(settings: &Settings) -> Vec<PathRule> {
    let place = |path: &Path, access| PathRule { path: path.to_owned(), access };
    let mut places = vec![
        // The server reads about its own memory and threads here, and reopens files by their descriptors.
        place(Path::new("/proc/self"), READ),
        // When io_uring is refused, the error quotes this setting.
        place(Path::new("/proc/sys/kernel/io_uring_disabled"), AccessFs::ReadFile.into()),
        // The executor asks for CPUs, and for the block size of the device below each file that it opens.
        place(Path::new("/sys/devices"), READ),
    ];
    // The message of a panic takes the names of functions from the program.
    places.extend(std::env::current_exe().ok().map(|program| place(&program, AccessFs::ReadFile.into())));
    places.extend(settings.data.as_deref().map(|data| place(data, CHANGE)));
    if let Some(directory) = &settings.backup.directory {
        places.push(place(&directory.path, CHANGE));
    }
    if settings.backup.bucket.is_some() {
        places.extend(names_of_hosts());
    }
    if let Some(tls) = &settings.tls {
        let files = [
            ("-tls-cert", Some(&tls.certificate)),
            ("-tls-key", Some(&tls.key)),
            ("-tls-ca", tls.client_roots.as_ref()),
        ];
        for (flag, file) in files {
            places.extend(file.into_iter().flat_map(|file| places_of(flag, file, READ)));
        }
    }
    if let Some(keys) = &settings.keys {
        // A rule needs a directory that exists.
        if let Err(error) = make_directory(&keys.file) {
            let file = keys.file.display();
            tracing::warn!(
                "-keys-file {file}: its directory cannot be made, so no API key can be added: {error}"
            );
        }
        places.extend(places_of("-keys-file", &keys.file, REPLACE));
        places.extend(keys.jwt.iter().flat_map(|jwt| places_of("-jwt-public-key", &jwt.keys, READ)));
    }
    for (flag, file) in settings.log_files.paths() {
        // A device or a pipe is not replaced by another file, and what lies beside it belongs to others.
        match fs::metadata(file) {
            // An anonymous pipe, such as /dev/stdout of a container, needs no rule, and the kernel accepts none for it.
            Ok(_) if statfs(file).is_ok_and(|found| found.f_type as u64 == PIPEFS_MAGIC) => {}
            Ok(found) if !found.is_file() => places.push(place(file, APPEND & !AccessFs::MakeReg)),
            _ => places.extend(places_of(flag, file, APPEND)),
        }
    }
    if cfg!(feature = "cuda") {
        places.extend(gpu(Path::new("/dev")));
    }
    places
}

/// What looking names of hosts up needs: the files of the resolver, which are replaced while the server runs, and libraries that the system's
/// configuration names, which are loaded with the first name.
fn names_of_hosts() -> Vec<PathRule> {
    let directories = ["/etc", "/lib", "/lib64", "/usr/lib", "/usr/lib64"].map(PathBuf::from);
    // What is there is a link in many systems, to a directory of the program that writes it.
    let resolver = directories_of(Path::new("/etc/resolv.conf"));
    directories.into_iter().chain(resolver).map(|path| PathRule { path, access: READ }).collect()
}

/// What the driver of a GPU needs, if `devices` has one. It loads libraries, from wherever they are installed, when the first collection asks for the
/// device: everything can be read then, and nothing else can be written.
fn gpu(devices: &Path) -> Vec<PathRule> {
    let names = fs::read_dir(devices).into_iter().flatten().flatten();
    let nodes = names.filter(|entry| entry.file_name().to_string_lossy().starts_with("nvidia"));
    let mut places: Vec<PathRule> = nodes
        .map(|entry| PathRule {
            access: if entry.path().is_dir() { DEVICE } else { DEVICE & !AccessFs::ReadDir },
            path: entry.path(),
        })
        .collect();
    if !places.is_empty() {
        places.push(PathRule { path: PathBuf::from("/"), access: READ });
    }
    places
}

/// The directories of a file that `flag` names. The directory where its links end may be used with `access`, the others may be read.
fn places_of(flag: &str, file: &Path, access: BitFlags<AccessFs>) -> Vec<PathRule> {
    let directories = directories_of(file);
    let last = directories.len().saturating_sub(1);
    let mut places = Vec::new();
    for (at, directory) in directories.into_iter().enumerate() {
        if fs::canonicalize(&directory).is_ok_and(|path| path == Path::new("/")) {
            tracing::warn!(
                "{flag} {}: a file of the root directory cannot be replaced while the server is confined; move it to a directory of its own",
                file.display()
            );
            places.push(PathRule { path: file.to_owned(), access: access & AccessFs::from_file(TESTED) });
        } else {
            places.push(PathRule { path: directory, access: if at == last { access } else { READ } });
        }
    }
    places
}

/// The directories that a file may be in after it has been replaced: by another one of its name, by a link that leads to another file beside
/// its present one, or, if its directory is a link, by turning that link to another directory beside the present one. The last directory is where the
/// file is now.
fn directories_of(file: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut path = file.to_owned();
    for _ in 0..LINKS_MAX {
        let directory = parent(&path);
        found.extend(turned(&directory));
        found.push(directory.clone());
        match fs::read_link(&path) {
            // If the target is an absolute path, the result is that path alone.
            Ok(target) => path = directory.join(target),
            Err(_) => break,
        }
    }
    found
}

/// The directories of the releases between which links of a path are turned. Any component of the path may be a link, and so may any component of the
/// target of a link: in a volume of Kubernetes the directory `tls` is a link to `..data/tls`, and `..data` is turned.
fn turned(directory: &Path) -> Vec<PathBuf> {
    let Ok(absolute) = std::path::absolute(directory) else { return Vec::new() };
    let (mut found, mut links, mut path) = (Vec::new(), 0, PathBuf::new());
    let mut parts: VecDeque<PathBuf> =
        absolute.components().map(|part| PathBuf::from(part.as_os_str())).collect();
    while let Some(part) = parts.pop_front() {
        match part.components().next() {
            None | Some(Component::CurDir) => continue,
            Some(Component::ParentDir) => {
                path.pop();
                continue;
            }
            // A root replaces the whole path.
            Some(Component::Normal(_) | Component::RootDir | Component::Prefix(_)) => path.push(&part),
        }
        if links < LINKS_MAX
            && let Ok(target) = fs::read_link(&path)
        {
            links += 1;
            found.extend(releases(&path));
            path.pop();
            for part in target.components().rev() {
                parts.push_front(PathBuf::from(part.as_os_str()));
            }
        }
    }
    found
}

/// The directory of the releases between which a link is turned: `directory` must be a link to a directory of another name, below the directory of
/// the link. A link that leads elsewhere, as /var/run does, or that keeps the name, as those that systemd makes for private state do, says nothing
/// about the directories beside its target.
fn releases(directory: &Path) -> Option<PathBuf> {
    let target = fs::read_link(directory).ok()?;
    if target.file_name() == directory.file_name() {
        return None;
    }
    let holder = fs::canonicalize(parent(directory)).ok()?;
    let releases = fs::canonicalize(parent(&holder.join(target))).ok()?;
    (holder != Path::new("/") && releases.starts_with(&holder)).then_some(releases)
}

fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        Some(_) => PathBuf::from("."),
        None => PathBuf::from("/"),
    }
}

#[cfg(test)]
mod tests;
