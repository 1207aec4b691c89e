//! Relay in front of a node: it forwards connections, cuts them, or is silent.
//!
//! The node announces the address of its relay to clients, so all their connections pass through it.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

/// Port of clients.
const PORT: u16 = 9042;

/// Behaviour of a relay towards connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Forward,
    /// Open connections are closed, and new ones are closed at once.
    Cut,
    /// Connections stay open, and nothing is forwarded.
    Silent,
}

/// Running relay. Its threads end with the process.
#[derive(Debug)]
pub(super) struct Relay {
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    node: SocketAddr,
    mode: Mutex<Mode>,
    changed: Condvar,
    open: Mutex<Vec<TcpStream>>,
}

impl Relay {
    /// Listens on an address and forwards to a node.
    pub(super) fn start(listen: Ipv4Addr, node: Ipv4Addr) -> Self {
        let listener = TcpListener::bind((listen, PORT)).expect("the address of the relay is free");
        let state = Arc::new(State {
            node: (node, PORT).into(),
            mode: Mutex::new(Mode::Forward),
            changed: Condvar::new(),
            open: Mutex::default(),
        });
        let accepting = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                accepting.accept(client);
            }
        });
        Self { state }
    }

    /// Changes the behaviour.
    pub(super) fn set(&self, mode: Mode) {
        *self.state.mode() = mode;
        self.state.changed.notify_all();
        if mode == Mode::Cut {
            self.state.close_all();
        }
    }
}

impl State {
    fn mode(&self) -> std::sync::MutexGuard<'_, Mode> {
        self.mode.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close_all(&self) {
        let open = std::mem::take(&mut *self.open.lock().unwrap_or_else(PoisonError::into_inner));
        for stream in open {
            // Fails if the other side has closed it.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn accept(self: &Arc<Self>, client: TcpStream) {
        if *self.mode() == Mode::Cut {
            return;
        }
        let Ok(node) = TcpStream::connect(self.node) else {
            return;
        };
        for (from, to) in [(&client, &node), (&node, &client)] {
            let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else {
                return;
            };
            let state = Arc::clone(self);
            thread::spawn(move || state.forward(from, to));
        }
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|stream| stream.peer_addr().is_ok());
        open.extend([client, node]);
    }

    fn forward(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(count) = from.read(&mut buffer) {
            let silent = |mode: &mut Mode| *mode == Mode::Silent;
            drop(self.changed.wait_while(self.mode(), silent));
            if count == 0 || to.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    }
}
