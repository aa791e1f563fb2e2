import { useId, useState, type ReactElement } from "react";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { send, type FieldError } from "../api/client";
import { typeOf, type Node, type Schema } from "../api/document";
import { Choice, Picker, TextInput, Tick } from "../ui/fields";
import { Button } from "../ui/parts";
import { useDocument } from "../shell/state";
import { t } from "../text/text";
import { isTimestamp, plain, type Item } from "./form-value";
import { labelOf, sentence } from "./value";

type FieldProps = {
  name: string;
  schema: Schema;
  pointer: string;
  value: unknown;
  onChange: (value: unknown) => void;
  required: boolean;
  errors: FieldError[];
};

const longText = 600;

// Field is the form field of a member, as its schema says.
export function Field(props: FieldProps): ReactElement | null {
  const document = useDocument();
  const { name, pointer, value, onChange, required } = props;
  const schema = plain(document, props.schema);
  const common = {
    label: labelOf(name),
    hint: sentence(schema.description),
    error: props.errors.filter((e) => e.pointer === pointer || e.pointer === `${pointer}/id`).map((e) => sentence(e.message)).join(" ") || undefined,
    required,
  };
  if (/^ignored/i.test(schema.description ?? "")) return null;
  const target = referenced(document.target(name), schema, document.nameOf(props.schema), name, pointer);
  if (target) return <Reference {...common} target={target} value={value} onChange={onChange} isObject={typeOf(schema) === "object"} />;
  const text = value === undefined || value === null ? "" : String(value);
  switch (typeOf(schema)) {
    case "boolean":
      return <Tick {...common} value={value === true} onChange={onChange} />;
    case "array":
      return <ArrayField {...props} schema={schema} hint={common.hint} error={common.error} />;
    case "object":
      if (isTimestamp(schema)) return <DateField {...common} value={value as Item | undefined} onChange={onChange} />;
      return schema.properties ? <Group {...props} schema={schema} /> : <MapField {...props} schema={schema} hint={common.hint} error={common.error} />;
    case "integer":
    case "number":
      return <TextInput {...common} value={text} onChange={onChange} inputMode="numeric" placeholder={example(schema)} hint={withBounds(schema)} />;
  }
  if (schema.enum) {
    return <Choice {...common} value={text} onChange={onChange} options={schema.enum.map((id) => ({ id, label: id }))} canClear={!required} />;
  }
  const lines = (schema.maxLength ?? 0) > longText ? (schema.maxLength! > 5000 ? 12 : 3) : undefined;
  const isSecret = schema.writeOnly === true && !lines;
  return (
    <TextInput
      {...common}
      value={text}
      onChange={onChange}
      lines={isSecret || name.includes("password") ? undefined : lines}
      type={isSecret ? "password" : schema.format === "email" ? "email" : "text"}
      autoComplete={isSecret ? "new-password" : "off"}
      placeholder={isSecret ? undefined : example(schema)}
      mono={!!lines || /^ip|address|cidr|mac|mask|gateway/.test(schema.format ?? name)}
    />
  );
}

// referenced returns the collection that a member names an item of: by an object with an id, or by an id.
function referenced(target: Node | undefined, schema: Schema, component: string, name: string, pointer: string): Node | undefined {
  if (!target) return undefined;
  if (component === "RefBody" || (typeOf(schema) === "object" && Object.keys(schema.properties ?? {}).join() === "id")) return target;
  return typeOf(schema) === "integer" && /_id$/.test(name) && !/billing/.test(pointer) ? target : undefined;
}

function example(schema: Schema): string | undefined {
  const first = schema.examples?.[0];
  return first === undefined || typeof first === "object" ? undefined : t("such as {example}", { example: String(first).split("\n")[0]! });
}

function withBounds(schema: Schema): string | undefined {
  const bounds = schema.minimum !== undefined && schema.maximum !== undefined ? t("From {min} to {max}.", { min: schema.minimum, max: schema.maximum }) : "";
  return [sentence(schema.description), bounds].filter(Boolean).join(" ") || undefined;
}

type Option = { id: string; label: string; hint?: string };

export function optionOf(item: Item): Option {
  return { id: String(item.id), label: String(item.name ?? item.slug ?? item.email ?? `#${item.id}`), hint: `#${item.id}` };
}

type ReferenceProps = {
  label: string;
  hint?: string;
  error?: string;
  required?: boolean;
  target: Node;
  value: unknown;
  onChange: (value: unknown) => void;
  isObject: boolean;
};

// Reference picks an item of another collection by its name.
export function Reference({ target, value, onChange, isObject, ...common }: ReferenceProps): ReactElement {
  const [text, setText] = useState("");
  const canSearch = target.list!.parameters.some((p) => p.name === "q");
  const query = { per_page: canSearch ? "20" : "200", q: canSearch ? text : undefined };
  const options = useQuery({
    queryKey: ["options", target.path, query],
    queryFn: async ({ signal }) => (await send<Item[]>("get", target.path, { query, signal })).data.map(optionOf),
    placeholderData: keepPreviousData,
  });
  const item = typeof value === "object" && value !== null ? (value as Item) : value === undefined || value === null || value === "" ? undefined : { id: value };
  const known = item?.id === undefined ? undefined : (options.data?.find((o) => o.id === String(item.id)) ?? optionOf(item));
  const shown = (options.data ?? []).filter((o) => canSearch || o.label.toLowerCase().includes(text.toLowerCase()));
  return (
    <Picker
      {...common}
      value={known}
      options={shown}
      isLoading={options.isFetching}
      onSearch={setText}
      onChange={(option) => onChange(option && (isObject ? { id: Number(option.id), name: option.label } : Number(option.id)))}
    />
  );
}

function DateField(props: { label: string; hint?: string; error?: string; required?: boolean; value?: Item; onChange: (value: unknown) => void }): ReactElement {
  const { value, onChange, ...common } = props;
  const iso = value?.iso_8601 ? new Date(String(value.iso_8601)) : undefined;
  const local = iso ? new Date(iso.getTime() - iso.getTimezoneOffset() * 60_000).toISOString().slice(0, 16) : "";
  return (
    <TextInput
      {...common}
      type="datetime-local"
      value={local}
      onChange={(text) => onChange(text ? { iso_8601: new Date(text).toISOString().replace(".000Z", "Z") } : undefined)}
    />
  );
}

// Group is an object within a form.
function Group(props: FieldProps): ReactElement {
  const { name, pointer, onChange, errors } = props;
  const value = (props.value ?? {}) as Item;
  const own = errors.filter((e) => e.pointer === pointer).map((e) => sentence(e.message)).join(" ");
  const isOpen = props.required || Object.keys(value).length > 0 || errors.some((e) => e.pointer.startsWith(`${pointer}/`));
  return (
    <details className="group" open={isOpen}>
      <summary>
        {labelOf(name)} <span className="hint">{sentence(props.schema.description)}</span>
      </summary>
      {own && <p className="error" role="alert">{own}</p>}
      <Fields schema={props.schema} pointer={pointer} value={value} onChange={onChange} errors={errors} owner={name} />
    </details>
  );
}

// Fields are the fields of an object's members: required ones first, nested ones last.
export function Fields(props: {
  schema: Schema;
  pointer: string;
  value: Item;
  onChange: (value: Item) => void;
  errors: FieldError[];
  owner?: string;
}): ReactElement {
  const document = useDocument();
  const required = new Set(props.schema.required);
  const rank = ([name, schema]: [string, Schema]): number => {
    const type = typeOf(plain(document, schema));
    return (required.has(name) ? 0 : 10) + (name === "name" ? -1 : 0) + (type === "array" ? 3 : type === "object" && !document.target(name) ? 4 : 0);
  };
  const members = Object.entries(props.schema.properties ?? {}).sort((a, b) => rank(a) - rank(b));
  return (
    <div className="fields">
      {members.map(([name, schema]) => {
        const target = name === "id" && props.owner ? document.target(props.owner) : undefined;
        const change = (value: unknown): void => props.onChange({ ...props.value, [name]: value });
        const pointer = `${props.pointer}/${name}`;
        if (target) {
          const error = props.errors.find((e) => e.pointer === pointer);
          return (
            <Reference
              key={name}
              label={labelOf(target.noun)}
              hint={sentence(schema.description)}
              error={sentence(error?.message)}
              target={target}
              value={props.value.id === undefined ? undefined : { id: props.value.id, name: props.value.name }}
              onChange={(value) => props.onChange({ ...props.value, id: (value as Item | undefined)?.id, name: (value as Item | undefined)?.name })}
              isObject
            />
          );
        }
        return (
          <Field
            key={name}
            name={name}
            schema={schema}
            pointer={pointer}
            value={props.value[name]}
            onChange={change}
            required={required.has(name)}
            errors={props.errors}
          />
        );
      })}
    </div>
  );
}

type ListFieldProps = FieldProps & { hint?: string; error?: string };

// ArrayField is a list of texts, one a line, or a list of objects.
function ArrayField(props: ListFieldProps): ReactElement {
  const document = useDocument();
  const id = useId();
  const items = plain(document, props.schema.items ?? {});
  const values = (Array.isArray(props.value) ? props.value : []) as unknown[];
  const inner = props.errors.filter((e) => e.pointer.startsWith(`${props.pointer}/`)).map((e) => `${e.pointer.slice(props.pointer.length + 1)}: ${e.message}`);
  const hasObjects = typeOf(items) === "object";
  if (!hasObjects && !items.enum) {
    return (
      <TextInput
        label={labelOf(props.name)}
        hint={[props.hint, t("One a line.")].filter(Boolean).join(" ")}
        error={[props.error, ...inner].filter(Boolean).join(" ") || undefined}
        required={props.required}
        lines={Math.min(Math.max(values.length + 1, 2), 8)}
        mono
        value={values.join("\n")}
        onChange={(text) => props.onChange(text === "" ? [] : text.split("\n"))}
      />
    );
  }
  const set = (index: number, value: unknown): void => props.onChange(values.map((v, i) => (i === index ? value : v)));
  return (
    <div className="group list" role="group" aria-labelledby={id}>
      <p id={id} className="legend">{labelOf(props.name)} <span className="hint">{props.hint}</span></p>
      {props.error && <p className="error" role="alert">{props.error}</p>}
      {values.map((value, index) => (
        <div key={index} className="row">
          <Field
            name={props.name.replace(/s$/, "")}
            schema={props.schema.items ?? {}}
            pointer={`${props.pointer}/${index}`}
            value={value}
            onChange={(v) => set(index, v)}
            required
            errors={props.errors}
          />
          <Button icon="close" look="quiet" aria-label={t("Remove")} onPress={() => props.onChange(values.filter((_, i) => i !== index))} />
        </div>
      ))}
      <Button icon="plus" onPress={() => props.onChange([...values, hasObjects ? {} : ""])}>{t("Add")}</Button>
    </div>
  );
}

// MapField is an object with names that the caller chooses, such as variables: one "name = value" a line.
function MapField(props: ListFieldProps): ReactElement {
  const [text, setText] = useState(() => Object.entries((props.value ?? {}) as Item).map(([k, v]) => `${k} = ${v}`).join("\n"));
  const inner = props.errors.filter((e) => e.pointer.startsWith(`${props.pointer}/`)).map((e) => `${e.pointer.slice(props.pointer.length + 1)}: ${e.message}`);
  return (
    <TextInput
      label={labelOf(props.name)}
      hint={[props.hint, t("One “name = value” a line.")].filter(Boolean).join(" ")}
      error={[props.error, ...inner].filter(Boolean).join(" ") || undefined}
      required={props.required}
      lines={4}
      mono
      value={text}
      onChange={(changed) => {
        setText(changed);
        const pairs = changed.split("\n").filter((line) => line.trim()).map((line) => line.split(/\s*=\s*(.*)/s).slice(0, 2) as [string, string?]);
        props.onChange(Object.fromEntries(pairs.map(([k, v]) => [k.trim(), v ?? ""])));
      }}
    />
  );
}
