# Filters that read what Slurm's users write: host lists, slurm.conf, and variables of other roles. Python 3.6 or newer, nothing else.
import re


def split_list(text):
    """The entries of a host list: commas outside of brackets part them."""
    out, depth, entry = [], 0, ''
    for c in text:
        if c == ',' and depth == 0:
            out.append(entry)
            entry = ''
            continue
        depth += {'[': 1, ']': -1}.get(c, 0)
        if depth < 0:
            raise ValueError('"%s" has a ] without a [' % text)
        entry += c
    if depth:
        raise ValueError('"%s" has a [ without a ]' % text)
    return [e.strip() for e in out + [entry] if e.strip()]


def expand(entry):
    m = re.match(r'^([^\[]*)\[([^\]]*)\](.*)$', entry)
    if not m:
        return [entry]
    out = []
    for part in m.group(2).split(','):
        r = re.match(r'^\s*(\d+)(?:-(\d+))?\s*$', part)
        if not r:
            raise ValueError('"%s" in "%s" is neither a number nor a range' % (part, entry))
        low, high = r.group(1), r.group(2) or r.group(1)
        if int(high) - int(low) > 100000:
            raise ValueError('"%s" in "%s" is too large a range' % (part, entry))
        for i in range(int(low), int(high) + 1):
            for rest in expand(m.group(3)):
                out.append(m.group(1) + str(i).zfill(len(low)) + rest)
    return out


def hostlist(text):
    """n[1-3],login -> ["n1", "n2", "n3", "login"]"""
    return [name for entry in split_list(str(text)) for name in expand(entry)]


def node_names(text):
    """The nodes that a slurm.conf names, comments and DEFAULT left out."""
    out = []
    for line in str(text).replace('\\\n', ' ').split('\n'):
        m = re.match(r'^\s*NodeName\s*=\s*(\S+)', line.split('#')[0], re.I)
        if m and m.group(1).upper() != 'DEFAULT':
            out += hostlist(m.group(1))
    return out


def conf_value(value):
    """A value as slurm.conf has it: YAML reads YES as true."""
    if isinstance(value, bool):
        return 'YES' if value else 'NO'
    if isinstance(value, (list, tuple)):
        return ','.join(conf_value(v) for v in value)
    return str(value)


def conf_lines(config):
    """A dictionary as lines KEY=VALUE. None leaves a key out; a list makes a line of each entry where its values are dictionaries."""
    out = []
    for key in config or {}:
        value = config[key]
        if value is None:
            continue
        if isinstance(value, (list, tuple)) and value and isinstance(value[0], dict):
            out += [record_line(key, v) for v in value]
        else:
            out.append('%s=%s' % (key, conf_value(value)))
    return out


def record_line(key, record):
    """{name: n[1-2], CPUs: 4} -> NodeName=n[1-2] CPUs=4, for key NodeName. The key may be called "name", where it is not there itself."""
    record = dict(record)
    own = [k for k in record if k.lower() == key.lower()] or [k for k in record if k.lower() == 'name']
    name = record.pop(own[0]) if own else None
    parts = [] if name is None else ['%s=%s' % (key, conf_value(name))]
    for k in record:
        if record[k] is None or record[k] == '':
            continue
        v = conf_value(record[k])
        parts.append('%s=%s' % (k, '"%s"' % v if re.search(r'\s', v) and not v.startswith('"') else v))
    return ' '.join(parts)


def mebibytes(value):
    """64000 or 64G, as slurm.conf has it."""
    m = re.match(r'^(\d+)([MGT]?)B?$', str(value), re.I)
    if not m:
        raise ValueError('"%s" is no amount of memory' % value)
    return int(m.group(1)) << {'': 0, 'M': 0, 'G': 10, 'T': 20}[m.group(2).upper()]


def memory_per_cpu(nodes):
    """What each of the nodes (dictionaries with the keys of a NodeName line) has for each of its CPUs, in MiB; empty where that is not known."""
    default, least = {}, ''
    for node in nodes or []:
        keys = {k.lower(): node[k] for k in node}
        if str(keys.get('nodename', keys.get('name', ''))).upper() == 'DEFAULT':
            default.update(keys)
            continue
        keys = dict(default, **keys)
        try:
            cpus = int(keys.get('cpus', keys.get('procs', 0)))
            if not cpus:
                sockets = int(keys.get('sockets', 0)) or int(keys.get('boards', 1)) * int(keys.get('socketsperboard', 1))
                cpus = sockets * int(keys.get('corespersocket', 1)) * int(keys.get('threadspercore', 1))
            per = (mebibytes(keys['realmemory']) - mebibytes(keys.get('memspeclimit', 0))) // cpus
        except (KeyError, TypeError, ValueError, ZeroDivisionError):
            return ''
        least = per if least == '' else min(least, per)
    return least if least and least > 0 else ''


def gres_line(record):
    """A line of gres.conf, which begins with the nodes that it is about where it names some, else with the name of the resource."""
    return record_line('Name' if get_key(record, 'NodeName') is None else 'NodeName', record)


def conf_files(said, keys, names=None):
    """The files that these keys name, of which the daemons make no folder; names are those that stand for %n and %h."""
    out = []
    for key in keys:
        path = str(get_key(said, key) or '').strip('"')
        for mark in names or {}:
            path = path.replace(mark, names[mark])
        out += [path] if path.startswith('/') and '%' not in path else []
    return out


def conf_folders(files, below_run=False):
    """The folders of files: those below /run as paths there, which systemd has to make at each start, or the others."""
    out = set()
    for path in files:
        folder, run = path.rsplit('/', 1)[0], re.match(r'^(?:/var)?/run(?:/(.*))?/[^/]*$', path)
        if run:
            out |= {run.group(1)} if below_run and run.group(1) else set()
        elif folder and not below_run:
            out.add(folder)
    return sorted(out)


def without(config, others):
    """config without the keys of others, in whichever case they are written."""
    taken = set(k.lower() for k in others or {})
    return {k: config[k] for k in config if k.lower() not in taken}


def get_key(config, key, default=None):
    """The value of a key in whichever case it is written."""
    for k in config or {}:
        if k.lower() == key.lower():
            return config[k]
    return default


def conf_dict(text):
    """The keys of a slurm.conf that stand by themselves, and their values."""
    out = {}
    for line in str(text).replace('\\\n', ' ').split('\n'):
        m = re.match(r'^\s*(\w+)\s*=\s*(.*?)\s*$', line.split('#')[0])
        if m and not re.match(r'^(NodeName|NodeSet|PartitionName|DownNodes|SwitchName|Include)$', m.group(1), re.I):
            if m.group(1).lower() != 'slurmctldhost' or not get_key(out, 'SlurmctldHost'): # the first is the controller
                out[m.group(1)] = m.group(2)
    return out


def controller_address(said, default=''):
    """Where hosts look for the controller of a slurm.conf, whose keys are said: head(10.0.0.1) -> 10.0.0.1, head -> head."""
    m = re.match(r'^\s*([^\s(,]+)(?:\(([^)\s]+)\))?', str(get_key(said, 'SlurmctldHost', '')))
    if m:
        return m.group(2) or m.group(1)
    return get_key(said, 'ControlAddr') or get_key(said, 'ControlMachine') or default


def conf_with(text, values):
    """A slurm.conf in which these keys have these values. What it said of them is kept as a comment; None only takes a key out."""
    keys = set(k.lower() for k in values)
    out = []
    for line in str(text).split('\n'):
        m = re.match(r'^\s*(\w+)\s*=', line)
        out.append('# was: ' + line if m and m.group(1).lower() in keys else line)
    return '\n'.join(conf_lines(values) + out) + '\n'


def accounts_differ(mine, theirs, here, there):
    """What of the accounts of two hosts contradicts: a sentence each. Accounts are dictionaries from name to uid."""
    out = []
    names = {theirs[n]: n for n in theirs}
    for name in sorted(mine):
        uid = mine[name]
        if name in theirs and theirs[name] != uid:
            out.append('user %s has uid %d on %s and %d on %s: give them the same uid on both (usermod -u %d %s on %s, and chown the '
                       "user's files), or take accounts from a directory" % (name, uid, here, theirs[name], there, theirs[name], name, here))
        elif name not in theirs and uid in names and names[uid] not in mine:
            out.append('uid %d is %s on %s and %s on %s: a uid has to be the same user on all hosts; rename or renumber one of them'
                       % (uid, name, here, names[uid], there))
    return out


# What sacctmgr shows of a QOS of which nothing was said.
QOS_DEFAULTS = {'Priority': '0', 'GraceTime': '00:00:00', 'PreemptMode': 'cluster', 'UsageFactor': '1.000000'}


def seconds(clock):
    """The seconds of 00:00:30 or 1-00:00:00: sacctmgr shows times so that it takes as seconds only."""
    days, _, rest = clock.rpartition('-')
    total = int(days or 0) * 24
    for part, factor in zip(rest.split(':'), (1, 60, 60)):
        total = total * factor + int(part)
    return total


def qos_commands(table, there=''):
    """The arguments of sacctmgr that make each QOS of a table as it is there. The table is Slurm's (sacctmgr --parsable2 show qos), there
    are the names of the QOS that exist already, a line each. All are added before any is changed, since one may preempt another."""
    rows = [line.split('|') for line in str(table).splitlines() if '|' in line]
    head, rows = (rows[0] if rows else ['Name']), rows[1:]
    if head[0] != 'Name':
        raise ValueError('this is no table of sacctmgr show qos: it begins with "%s"' % head[0])
    exists = str(there).split()
    new = [row[0] for row in rows if row[0] not in exists]
    out = [['add', 'qos', ','.join(new)]] if new else []
    for row in rows:
        said = ['%s=%s' % (key, seconds(value) if key == 'GraceTime' else value) for key, value in zip(head[1:], row[1:])
                if value and value != QOS_DEFAULTS.get(key)]
        if said:
            out.append(['modify', 'qos', row[0], 'set'] + said)
    return out


class FilterModule(object):
    def filters(self):
        return {'sluice_hostlist': hostlist, 'sluice_node_names': node_names, 'sluice_conf_lines': conf_lines,
                'sluice_record_line': record_line, 'sluice_gres_line': gres_line, 'sluice_conf_files': conf_files,
                'sluice_conf_folders': conf_folders,
                'sluice_memory_per_cpu': memory_per_cpu,
                'sluice_without': without, 'sluice_get': get_key,
                'sluice_conf_dict': conf_dict, 'sluice_controller_address': controller_address,
                'sluice_conf_with': conf_with, 'sluice_accounts_differ': accounts_differ,
                'sluice_qos_commands': qos_commands}
