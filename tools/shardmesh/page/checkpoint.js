// SPDX-License-Identifier: Apache-2.0
// Turns the document of `shardmesh inspect --json` into the rows of a table and into a tree of bytes.

const deepest_key = 24; // a hostile key may have any number of dots

// The holders are the ranks that wrote the files, if every file's name contains a rank; otherwise, they are the files.
function read_checkpoint(data) {
  const files = Object.keys(data.files), by_rank = files.length > 0 && files.every((file) => data.files[file].rank !== null);
  const holders = new Map();
  const holder_of = (file) => {
    const id = file === null ? "nowhere" : by_rank ? data.files[file].rank : file;
    if (!holders.has(id)) holders.set(id, {id, name: file === null ? "no file" : by_rank ? `rank ${id}` : file,
      short: by_rank ? String(id) : String(files.indexOf(file)), bytes: 0, stored: 0, chunks: 0, tensors: 0});
    return holders.get(id);
  };
  for (const file of files) holder_of(file);
  const tensors = Object.entries(data.tensors).map(([key, said]) => {
    const cells = volume(said.shape);
    const chunks = said.chunks.map((chunk) => ({...chunk, holder: holder_of(chunk.file),
      bytes: cells > 0 ? said.bytes * (volume(chunk.sizes) / cells) : 0}));
    const tensor = {key, dtype: said.dtype, shape: said.shape, bytes: said.bytes, chunks, held: new Map()};
    for (const {holder, bytes, length} of chunks) {
      holder.bytes += bytes;
      holder.stored += length ?? 0;
      holder.chunks += 1;
      if (!tensor.held.has(holder)) holder.tensors += 1;
      tensor.held.set(holder, (tensor.held.get(holder) ?? 0) + bytes);
    }
    tensor.stored = sum(chunks.map((chunk) => chunk.length ?? 0));
    return tensor;
  });
  const order = [...holders.values()].sort((a, b) => (by_rank ? a.id - b.id : 0));
  order.forEach((holder, i) => { holder.color = color_of(i); });
  return {tensors, holders: order, by_rank};
}

// A group is {name, bytes, tensors, children: Map or null, entry}. Parts of it are [{key, bytes, entry}].
function make_group(name) {
  return {name, bytes: 0, tensors: 0, children: new Map(), entry: null};
}

function group_by_module(name, parts) {
  const root = make_group(name);
  for (const {key, bytes, entry} of parts) {
    const names = key.split("."), path = names.slice(0, deepest_key - 1);
    if (names.length >= deepest_key) path.push(names.slice(deepest_key - 1).join("."));
    let group = root;
    for (const step of path) {
      group.bytes += bytes;
      group.tensors += 1;
      group.children ??= new Map();
      if (!group.children.has(step)) group.children.set(step, {name: step, bytes: 0, tensors: 0, children: null, entry: null});
      group = group.children.get(step);
    }
    group.bytes += bytes;
    group.tensors += 1;
    group.entry = entry;
  }
  return collapsed(root);
}

// Joins a group that has one child with that child: "model.layers". If a tensor's key is also the prefix of other keys,
// the tensor becomes the child "(itself)" of their group.
function collapsed(group) {
  if (!group.children) return group;
  for (const [step, child] of group.children) {
    let inner = child, name = child.name;
    while (inner.children?.size === 1 && !inner.entry) {
      inner = inner.children.values().next().value;
      name = `${name}.${inner.name}`;
    }
    if (inner.children && inner.entry) {
      const own = inner.bytes - sum([...inner.children.values()].map((one) => one.bytes));
      inner.children.set(inner, {name: "(itself)", bytes: own, tensors: 1, children: null, entry: inner.entry});
      inner.entry = null;
    }
    group.children.set(step, collapsed({...inner, name}));
  }
  return group;
}

function group_by_holder(name, checkpoint, tensors) {
  const root = make_group(name), parts = new Map(checkpoint.holders.map((holder) => [holder, []]));
  for (const tensor of tensors)
    for (const [holder, bytes] of tensor.held) parts.get(holder).push({key: tensor.key, bytes, entry: tensor});
  for (const [holder, own] of parts) {
    if (own.length === 0) continue;
    const group = {...group_by_module(holder.name, own), holder};
    mark_holder(group, holder);
    root.children.set(holder, group);
    root.bytes += group.bytes;
    root.tensors += group.tensors;
  }
  return root;
}

function mark_holder(group, holder) {
  group.holder = holder;
  for (const child of group.children?.values() ?? []) mark_holder(child, holder);
}
